#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: memory_guard
short_description: Install or remove the memory guard on a node
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Writes the files that M(dgxspark.cluster.unit_plan) made, enables their units, and gives running
    daemons their OOM score. No daemon but those in O(restart) is restarted.
  - Files of an earlier plan are removed; a record on the node says which are ours.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
options:
  state:
    description: V(absent) removes only what was installed.
    type: str
    choices: [present, absent]
    default: present
  files:
    description: The files, each with C(path), C(content) and C(mode).
    type: list
    elements: dict
    default: []
  enable:
    description: Units to enable and start.
    type: list
    elements: str
    default: []
  restart:
    description: Units of O(enable) that are restarted after a change.
    type: list
    elements: str
    default: []
  adjust:
    description: The OOM score of running daemons, by unit.
    type: dict
    default: {}
  package_ours:
    description: Whether the role has installed earlyoom, and so may remove it.
    type: bool
    default: false
notes:
  - Needs root (C(become)).
"""

EXAMPLES = r"""
- name: Remove the memory guard
  dgxspark.cluster.memory_guard:
    state: absent
"""

RETURN = r"""
changes:
  description: What differed, each with C(subject), C(what), C(before) and C(after).
  returned: always
  type: list
  elements: dict
earlyoom:
  description: Whether earlyoom is installed.
  returned: success
  type: bool
package_ours:
  description: Whether the role had installed earlyoom.
  returned: success
  type: bool
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils import unit_files
from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import module_runner
from ansible_collections.dgxspark.cluster.plugins.module_utils.unit_files import UnitFiles
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, change_result

RECORD = "/var/lib/dgxspark/memory_guard.json"
PROGRAM = "/usr/bin/earlyoom"
EARLYOOM = "earlyoom.service"


def run(module: t.Any) -> dict[str, t.Any]:
    """Bring the node to the wanted state; return what differed."""
    given, node = module.params, UnitFiles(module_runner(module), RECORD)
    ours = bool(node.ours.get("package") or given["package_ours"])
    wanted = None if given["state"] == "absent" else unit_files.wanted(given, given["adjust"])
    changes = node.settle(wanted, module.check_mode, {"package": ours}, keep_running=[EARLYOOM])
    return {**change_result(changes), "earlyoom": node.installed(PROGRAM), "package_ours": ours}


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            **unit_files.ARGUMENTS,
            "adjust": {"type": "dict", "default": {}},
            "package_ours": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    try:
        result = run(module)
    except CollectionError as exc:
        module.fail_json(msg=str(exc), changes=[])
    module.exit_json(**result)


if __name__ == "__main__":
    main()
