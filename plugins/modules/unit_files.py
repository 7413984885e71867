#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: unit_files
short_description: Install or remove a set of files and systemd units on a node
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Writes files, all of them or none, and enables the units among them. Files of an earlier run are removed.
  - A record on the node lists the files of the set; no other file is touched.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
options:
  name:
    description: The set's name. The record is C(/var/lib/dgxspark/NAME.json).
    type: str
    required: true
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
  output:
    description: Files that the units write, which are removed with them.
    type: list
    elements: path
    default: []
  needs:
    description: Folders of other software that must exist, each with what to do if it does not.
    type: dict
    default: {}
notes:
  - Needs root (C(become)).
"""

EXAMPLES = r"""
- name: Remove the metrics
  dgxspark.cluster.unit_files:
    name: metrics
    state: absent
"""

RETURN = r"""
changes:
  description: What differed, each with C(subject), C(what), C(before) and C(after).
  returned: always
  type: list
  elements: dict
"""

import pathlib
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils import node_files
from ansible_collections.dgxspark.cluster.plugins.module_utils import unit_files as core
from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import module_runner
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.files import temporary
from ansible_collections.dgxspark.cluster.plugins.module_utils.unit_files import UnitFiles
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, change_result

RECORDS = "/var/lib/dgxspark"
ARGUMENTS: dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    **core.ARGUMENTS,
    "output": {"type": "list", "elements": "path", "default": []},
    "needs": {"type": "dict", "default": {}},
}


def run(module: t.Any) -> dict[str, t.Any]:
    """Bring the node to the wanted state; return what differed."""
    given = module.params
    node = UnitFiles(module_runner(module), f"{RECORDS}/{given['name']}.json")
    written, wanted, output = list(node.ours.get("output", ())), None, []
    if given["state"] == "present":
        missing = [folder for folder in given["needs"] if not pathlib.Path(folder).is_dir()]
        if missing:
            raise CollectionError(f"{missing[0]}: the folder does not exist. {given['needs'][missing[0]]}")
        wanted, output = core.wanted(given), given["output"]
    changes = node.settle(wanted, module.check_mode, {"output": output})
    for path in () if module.check_mode else written:
        if path not in output:  # a program that was stopped may have left it half written
            node_files.remove(path)
            node_files.remove(temporary(path))
    return change_result(changes)


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    try:
        result = run(module)
    except CollectionError as exc:
        module.fail_json(msg=str(exc), changes=[])
    module.exit_json(**result)


if __name__ == "__main__":
    main()
