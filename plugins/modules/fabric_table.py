#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_table
short_description: Show the fabric plan, and what would change on the nodes
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Reads C(dgxspark_plan), and for each host of the play what M(dgxspark.cluster.fabric_changes) returned. A host without it was
    not reached, and is marked so in the table. A question mark stands for what only the node knows.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  registers:
    description: The names under which the play has registered the results of M(dgxspark.cluster.fabric_changes).
    type: list
    elements: str
    default: []
seealso:
  - module: dgxspark.cluster.fabric_changes
  - module: dgxspark.cluster.show
"""

EXAMPLES = r"""
- name: Format the plan
  dgxspark.cluster.fabric_table:
  register: shown
  run_once: true

- name: Show it
  dgxspark.cluster.show:
    lines: "{{ shown.table }}"
  run_once: true
"""

RETURN = r"""
table:
  description: The plan as lines for a terminal.
  type: list
  elements: str
  returned: success
changes:
  description: What would change on each host that was read.
  type: dict
  returned: success
refusals:
  description: What is wrong, with its remedy, as sentences. Each stands once, after the hosts that have it.
  type: list
  elements: str
  returned: success
findings:
  description: The findings about these changes, for each host that was read.
  type: dict
  returned: success
ended:
  description: What a run of the fabric ends with, as lines for a terminal - what is there, and what comes next.
  type: list
  elements: str
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "registers": {"type": "list", "elements": "str", "default": []},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
