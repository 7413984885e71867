#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: matrix_compare
short_description: Compare two logs of a matrix
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Says what got slower or faster beyond the noise of the repeats, and which cases no longer pass, or pass now.
  - A difference counts if chance alone would cause it in fewer than one figure in a hundred, given the spread of the repeats on
    both sides and the three per cent by which runs are known to differ. Without repeats that is about 20 per cent, with three on
    either side about 8. Cases and their workloads are matched by their names.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  before:
    description: >-
      The folder of a matrix, or its journal, relative to where C(ansible-playbook) was started, or the id of a shipped matrix (a
      seed's table).
    type: str
    required: true
  after:
    description: The other one.
    type: str
    required: true
requirements:
  - jsonschema (Python library, on the controller)
"""

EXAMPLES = r"""
- name: Show what a new driver changed
  dgxspark.cluster.matrix_compare:
    before: matrix/driver-580
    after: matrix/driver-595
  register: compared
"""

RETURN = r"""
about:
  description: What differs in engine and platform, before and after.
  type: dict
  returned: success
rows:
  description: >-
    For each C(case), C(workload), C(n) and C(sum) the C(change), the C(noise) of the repeats, the C(limit) beyond which a change
    counts, and the C(verdict), V(same), V(slower) or V(faster).
  type: list
  elements: dict
  returned: success
broken:
  description: >-
    Cases that no longer pass or no longer exist, and levels (with their C(workload) and C(n)) that are missing, or at which
    requests fail or return garbage, and that were better before; RV(mended) has the cases that pass now.
  type: list
  elements: dict
  returned: success
mended:
  description: See RV(broken).
  type: list
  elements: dict
  returned: success
only:
  description: Cases that only C(before) or only C(after) has.
  type: dict
  returned: success
table:
  description: The comparison as lines for a terminal.
  type: list
  elements: str
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "before": {"type": "str", "required": True},
    "after": {"type": "str", "required": True},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
