#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: node_firmware
short_description: Read a node's firmware, or install stated versions, with fwupd
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Lists the devices whose firmware fwupd can update, with what they run, what they are offered, and what awaits a restart.
  - With O(install) it first installs these versions, one after the other, and stops at the first that fails. It restarts nothing.
  - Firmware can mostly not be taken back.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.attributes.proc_root
attributes:
  diff_mode:
    support: none
options:
  install:
    description: What is installed, where it does not run or await a restart already. A device's C(id) is as fwupd has it on this node.
    type: list
    elements: dict
    default: []
    suboptions:
      id:
        description: The device.
        type: str
        required: true
      version:
        description: The version, which fwupd must offer.
        type: str
        required: true
      older:
        description: Whether it may be older than what runs.
        type: bool
        default: false
  refresh:
    description: Whether fwupd's lists are refreshed first. If that fails, RV(stale) says why.
    type: bool
    default: false
requirements:
  - C(fwupdmgr) with C(--json) (fwupd 1.9.5 and newer); without it C(error) of RV(firmware) says so
notes:
  - Needs root (C(become)).
seealso:
  - module: dgxspark.cluster.node_health
"""

EXAMPLES = r"""
- name: Read the firmware
  dgxspark.cluster.node_firmware:
  register: node
"""

RETURN = r"""
firmware:
  description: C(devices), each with C(id), C(guids), C(name), C(version), C(flags), C(problems), C(releases), C(awaits) and C(failed); C(error).
  returned: success
  type: dict
stale:
  description: Why the lists could not be refreshed; null if they were, or were not to be.
  returned: success
  type: str
"""

import pathlib
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils import firmware
from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import module_runner
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain

ARGUMENTS: dict[str, t.Any] = {
    "install": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "id": {"type": "str", "required": True},
            "version": {"type": "str", "required": True},
            "older": {"type": "bool", "default": False},
        },
    },
    "refresh": {"type": "bool", "default": False},
    "proc_root": {"type": "path", "default": "/proc"},
}


def _booted_s(proc_root: str) -> float | None:
    try:
        return time.time() - float(pathlib.Path(proc_root, "uptime").read_text("utf-8").split()[0])
    except (OSError, ValueError, IndexError):
        return None


def main() -> None:
    """Install what is asked for, and read."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    given, run = module.params, module_runner(module)
    stale = firmware.refresh(run) if given["refresh"] and not module.check_mode else None
    booted_s = _booted_s(given["proc_root"])
    read = firmware.read_firmware(run, booted_s)
    there = {(device.id, version) for device in read.devices for version in (device.version, device.awaits)}
    due = [step for step in given["install"] if (step["id"], step["version"]) not in there]
    try:
        for step in [] if module.check_mode else due:
            firmware.install(run, step["id"], step["version"], older=step["older"])
    except CollectionError as exc:
        module.fail_json(msg=str(exc))
    if due and not module.check_mode:
        read = firmware.read_firmware(run, booted_s)
    module.exit_json(changed=bool(due), firmware=to_plain(read), stale=stale)


if __name__ == "__main__":
    main()
