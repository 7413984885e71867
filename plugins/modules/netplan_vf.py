#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: netplan_vf
short_description: Write the fabric's netplan file, with rollback if a node is cut off
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Writes one netplan file and runs C(netplan apply), with a timer on the node that restores the old files. Only a new connection
    from the controller, after netplan has finished, stops that timer. A change that cuts the node off, a killed controller and a
    reboot in the middle all end with the old configuration.
  - Before anything is written, the file is combined with the node's other netplan files in a scratch folder, where C(netplan
    generate) must accept it, and every stanza of every file is resolved to the devices that it matches. Two stanzas for one device
    are refused, although netplan itself accepts them.
  - Interfaces in O(devices) that lack an address or have another MTU are configured again, even if every file is as planned. If
    another systemd-networkd file overrides netplan's, or an interface was renamed, the failure names it.
  - A planned address whose route to its own network is gone gets it back, without netplan. A route to that network by another
    interface is the owner's, and is refused.
  - If a change of another run is unconfirmed, the module first waits for it to end, and names it. A run that was cut off, or
    after whose start another one has come to the node, changes nothing any more.
  - An action plugin of the same name runs this module twice when something changes (once when not).
notes:
  - The renderer is that of the node; with NetworkManager, the text in O(content) has to set it in each stanza, as
    M(dgxspark.cluster.fabric_changes) does.
  - netplan matches C(macaddress) with a device's permanent MAC. The MAC that was set for a VF through its PF becomes its permanent
    one only once its driver is bound again, which M(dgxspark.cluster.sriov_vf) does.
requirements:
  - netplan, systemd and the system's Python with PyYAML on the node, which are installed together there.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.attributes.roots
  - dgxspark.cluster.attributes.system_root
  - dgxspark.cluster.attributes.run
options:
  path:
    description: The file.
    type: path
    default: /etc/netplan/90-dgxspark-fabric.yaml
  content:
    description:
      - Its text, as M(dgxspark.cluster.fabric_changes) returns it. Required with O(state=present).
      - Another text gets a first line that marks the file as ours. A file at O(path) without that line is the owner's. It is refused
        with O(state=present), and kept with O(state=absent).
    type: str
  state:
    description:
      - V(present) writes the file, V(absent) removes it and restores what was absorbed from other files, byte for byte
        with mode and owner.
    type: str
    choices: [present, absent]
    default: present
  devices:
    description: The interfaces that the file configures, including those that do not exist yet.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name, where it is known.
        type: str
      mac:
        description: Permanent MAC, where it is known.
        type: str
      addresses:
        description: Planned IPv4 addresses, each as C(address/prefix).
        type: list
        elements: str
        default: []
      mtu:
        description: Planned MTU, in bytes.
        type: int
  foreign_stanzas:
    description:
      - What to do with stanzas of other netplan files for interfaces that the file configures.
      - V(absorb) removes them from those files; the original files are kept below C(/var/lib/dgxspark/netplan/absorbed). A stanza
        that also configures other interfaces is still refused.
    type: str
    choices: [refuse, absorb]
    default: refuse
  rollback_timeout:
    description:
      - Seconds after which an unconfirmed change is rolled back. This includes the time that netplan itself takes.
      - If C(netplan apply) takes down the interface over which the node is reached (a connection of NetworkManager, or Wi-Fi,
        that is in netplan's files), the node adds 60 seconds, and a warning says so.
    type: int
    default: 60
  phase:
    description: The step to take. The action plugin sets it; leave it out.
    type: str
    choices: [begin, confirm]
    default: begin
  transaction:
    description: The change that is begun or confirmed. The action plugin sets it; leave it out.
    type: str
    default: manual
  waited:
    description: What this run has waited for so far. The action plugin sets it; leave it out.
    type: dict
    suboptions:
      id:
        description: The change of another run.
        type: str
        required: true
      who:
        description: That run in words.
        type: str
        required: true
      since:
        description: Since when, on the node's clock.
        type: float
        required: true
"""

EXAMPLES = r"""
- name: Generate the planned file
  dgxspark.cluster.fabric_changes:
    parts: [netplan]
  register: difference

- name: Give VFs and functions their addresses and MTU
  dgxspark.cluster.netplan_vf:
    content: "{{ difference.netplan.content }}"
    devices: "{{ difference.netplan.devices }}"
    foreign_stanzas: absorb

- name: Remove them, and restore the other files
  dgxspark.cluster.netplan_vf:
    state: absent
"""

RETURN = r"""
changes:
  description: What differed.
  type: list
  elements: dict
  returned: success
  contains:
    subject:
      description: File or interface.
      type: str
    what:
      description: What differed about it.
      type: str
    before:
      description: The previous value.
      type: raw
    after:
      description: The new value.
      type: raw
transaction:
  description: The change that is pending or confirmed.
  type: str
  returned: when something changed
outcome:
  description: >-
    The state of the change. From the action plugin it is V(unchanged), V(confirmed), V(removed) if only leftovers of an interrupted
    run were removed, or a failure.
  type: str
  returned: success
  sample: confirmed
rollback_timeout:
  description: Seconds of the change's timer.
  type: float
  returned: when a change was made
waiting:
  description: The change of another run that must end first; the action plugin then starts the module again. Else null.
  type: dict
  returned: success
message:
  description: More about a change that has ended. Null if there is nothing to report.
  type: str
  returned: success
"""

import os
import shutil
import tempfile
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.netplan import PATH, Device
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.netplan_change import (
    Outcome,
    Request,
    begin,
    confirm,
)
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.netplan_wait import Waited
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.turn import RUN_OPTIONS, Turn
from ansible_collections.dgxspark.cluster.plugins.module_utils.oserrors import reason
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric.rollback import Host, RollbackError
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, lines, text_diff, to_plain

DEVICE = {
    "name": {"type": "str"},
    "mac": {"type": "str"},
    "addresses": {"type": "list", "elements": "str", "default": []},
    "mtu": {"type": "int"},
}
WAITED = {key: {"type": kind, "required": True} for key, kind in (("id", "str"), ("who", "str"), ("since", "float"))}
ARGUMENTS: dict[str, t.Any] = {
    "path": {"type": "path", "default": PATH},
    "content": {"type": "str"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "devices": {"type": "list", "elements": "dict", "options": DEVICE, "default": []},
    "foreign_stanzas": {"type": "str", "choices": ["refuse", "absorb"], "default": "refuse"},
    "rollback_timeout": {"type": "int", "default": 60},
    "phase": {"type": "str", "choices": ["begin", "confirm"], "default": "begin"},
    "transaction": {"type": "str", "default": "manual"},
    "run": {"type": "dict", "options": RUN_OPTIONS},
    "waited": {"type": "dict", "options": WAITED},
    "sysfs_root": {"type": "path", "default": "/sys"},
    "system_root": {"type": "path", "default": "/"},
}
REQUIRED_IF = [("state", "present", ["content"])]


def work(module: AnsibleModule, scratch: str) -> Outcome:
    """Run the requested phase."""
    given = module.params
    if given["state"] == "present" and not (given["content"] or "").strip():
        raise CollectionError("content: the file's text is needed with state: present. state: absent removes the file.")
    devices = tuple(Device(**{**d, "addresses": tuple(d["addresses"])}) for d in given["devices"])
    request = Request(
        path=given["path"],
        content=given["content"] if given["state"] == "present" else None,
        transaction=given["transaction"],
        devices=devices,
        foreign_stanzas=given["foreign_stanzas"],
        timeout=given["rollback_timeout"],
        connection=os.environ.get("SSH_CONNECTION"),
        by=(given["run"] or {}).get("by"),
        waited=Waited(**given["waited"]) if given["waited"] else None,
    )
    host, sysfs = Host(given["system_root"]), Sysfs(given["sysfs_root"])
    if given["phase"] == "confirm":
        return confirm(host, request, host.command, sysfs)
    turn = Turn(given["run"], host.clock, given["system_root"])
    return begin(host, host.command, sysfs, request, scratch, check_mode=module.check_mode, turn=turn)


def main() -> None:
    """Run as a module."""
    module = AnsibleModule(argument_spec=ARGUMENTS, required_if=REQUIRED_IF, supports_check_mode=True)
    scratch = ""
    try:
        # In memory: a node whose disk is full or read-only is read, too.
        place = "/run" if os.access("/run", os.W_OK) else module.tmpdir
        scratch = tempfile.mkdtemp(prefix="dgxspark-netplan-", dir=place)
        outcome = work(module, scratch)
    except (CollectionError, RollbackError) as exc:
        module.fail_json(msg=str(exc))
    except OSError as exc:
        module.fail_json(msg=lines(f"{exc.filename or 'A file'}: {reason(exc)}"))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    result: dict[str, t.Any] = {
        "changed": bool(outcome.changes) or outcome.state == "confirmed",
        "changes": to_plain(outcome.changes),
        "outcome": outcome.state,
        "message": outcome.message or None,
        "waiting": outcome.waiting._asdict() if outcome.waiting else None,
        "transaction": module.params["transaction"],
        "rollback_timeout": outcome.timeout,
        "diff": [text_diff(*changed) for changed in outcome.text],
    }
    for warning in outcome.warnings:
        module.warn(warning)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
