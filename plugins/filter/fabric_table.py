# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: fabric_table
short_description: Show a plan of the fabric as a table
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns the lines of a plain table, for a terminal. Hosts that were planned without having been seen are marked, and
    what only the node can tell is a question mark.
positional: changes, findings
options:
  _input:
    description: The plan, as P(dgxspark.cluster.fabric_plan#filter) returns it.
    type: dict
    required: true
  changes:
    description:
      - What would change, by host, as P(dgxspark.cluster.fabric_changes#filter) returns it. A host that is not in it was
        not reached.
      - Without it, nothing is said of changes.
    type: dict
  findings:
    description: What speaks against these changes, by host, as lists of findings.
    type: dict
"""

EXAMPLES = r"""
- name: Show the plan
  dgxspark.cluster.show:
    lines: "{{ groups['dgx'] | dgxspark.cluster.fabric_plan(dgxspark_fabric, hostvars) | dgxspark.cluster.fabric_table }}"
"""

RETURN = r"""
_value:
  description: The lines.
  type: list
  elements: str
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"fabric_table": as_filter("fabric_table", "fabric.table:table")}
