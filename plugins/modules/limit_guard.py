#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: limit_guard
short_description: Refuse a limit that reaches other hosts than it seems to
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Ansible reads C(-l 'spark[1-4]') as positions in the group C(spark), counted from 0. Where hosts of these names
    exist, and others or fewer are reached, the limit does not mean what its writer meant.
  - A limit that leaves no host of the playbook's groups would pass with exit status 0 and do nothing.
  - The roles' numbers, booleans and choices are judged for every host, too. Ansible itself judges a role's variables only when that
    role begins, after earlier ones have changed the nodes.
  - It reads the limit, the inventory's groups and the play's hosts itself, and fails with the command that does what was meant.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  targets:
    description: The groups that the playbook works on.
    type: list
    elements: str
    default: [dgx]
  also:
    description: Groups that it also works on, if the inventory has them.
    type: list
    elements: str
    default: []
seealso:
  - plugin: dgxspark.cluster.every_host
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Refuse a misleading limit
  dgxspark.cluster.limit_guard:
  run_once: true
"""

RETURN = r"""
problems:
  description: One sentence for each problem.
  type: list
  elements: str
  returned: always
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "targets": {"type": "list", "elements": "str", "default": ["dgx"]},
    "also": {"type": "list", "elements": "str", "default": []},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
