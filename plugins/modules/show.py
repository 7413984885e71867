#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: show
short_description: Print lines on the terminal as they are
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Prints a table such as that of M(dgxspark.cluster.fabric_table) or M(dgxspark.cluster.launch_plan) on
    the controller's terminal, neither quoted nor wrapped, whatever the format of results is.
  - With a stdout callback for programs, such as C(ansible.posix.json), the lines are in the result, and go to standard
    error instead.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  lines:
    description: The lines.
    type: list
    elements: str
    required: true
seealso:
  - module: ansible.builtin.debug
"""

EXAMPLES = r"""
- name: Show the plan
  dgxspark.cluster.show:
    lines: "{{ shown.table }}"
  run_once: true
"""

RETURN = r"""
count:
  description: How many lines were printed.
  returned: success
  type: int
lines:
  description: The lines.
  returned: with a stdout callback for programs
  type: list
  elements: str
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {"lines": {"type": "list", "elements": "str", "required": True}}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
