#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: sriov_vf
short_description: Create the planned VFs of a node's RoCE fabric functions, and keep them across reboots
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Sets the number of VFs of each function, MTU and link of functions and VFs, the VFs' MAC addresses through their
    function (mlx5 derives a VF's node GUID from it), trust and spoof check, and the ARP sysctls that keep interfaces on
    one wire from answering for each other. Only what differs is touched.
  - Installs a systemd unit that does the same before the network comes up at boot, and a udev rule that gives a VF its
    settings again when it comes back from a pod.
  - One run at a time changes a node, and one that was cut off, or overtaken by a newer one, no longer does.
  - Nothing is changed if that would remove a VF that is in a live pod, or whose RDMA device a process has open. The failure names
    the VF and who uses it.
  - The state before the first change is recorded on the node and restored with O(state=absent), and for functions that
    are no longer planned.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.attributes.roots
  - dgxspark.cluster.attributes.netns_root
  - dgxspark.cluster.attributes.proc_root
  - dgxspark.cluster.attributes.system_root
  - dgxspark.cluster.attributes.run
options:
  functions:
    description:
      - The plan's functions for this node, as the filter P(dgxspark.cluster.fabric_plan#filter) returns them.
      - Not needed for O(state=absent).
    type: list
    elements: dict
    default: []
  device_ids:
    description: PCI C(vendor:device) of the fabric's physical functions, such as V(15b3:1021) for a ConnectX-7.
    type: list
    elements: str
    required: true
  state:
    description: Whether the node has the planned VFs, or what it had before.
    type: str
    choices: [present, absent]
    default: present
  reset_stranded:
    description:
      - Bring back VFs that were left in a network namespace without processes, and delete that namespace if it is a named one that
        holds nothing else. One with other interfaces or addresses is kept, with a warning. Namespaces with processes are never
        touched.
    type: bool
    default: false
  trust:
    description: Whether VFs are trusted (may change their MAC and see all traffic). Left as it is when omitted.
    type: bool
  spoof_check:
    description: Whether the function drops frames of a VF whose source is not its MAC. Left as it is when omitted.
    type: bool
  waited:
    description: The run that this one has waited for so far. The action plugin sets it; leave it out.
    type: str
requirements:
  - iproute2, systemd and udev on the node, and Python 3 as C(/usr/bin/python3)
notes:
  - Needs root (C(become)).
  - Addresses are configured by netplan, see M(dgxspark.cluster.netplan_vf). This module never applies netplan.
seealso:
  - module: dgxspark.cluster.roce_info
  - module: dgxspark.cluster.netplan_vf
"""

EXAMPLES = r"""
- name: Create the planned VFs
  dgxspark.cluster.sriov_vf:
    functions: "{{ dgxspark_plan.hosts[inventory_hostname].functions }}"
    device_ids: ["15b3:1021"]

- name: Restore the node's previous state
  dgxspark.cluster.sriov_vf:
    state: absent
    device_ids: ["15b3:1021"]
"""

RETURN = r"""
changes:
  description: What differed, each with C(subject) (such as V(p0f1v3), a file or a unit), C(what), C(before) and C(after).
  returned: always
  type: list
  elements: dict
  sample: [{"subject": "p0f0", "what": "VFs", "before": 0, "after": 4}]
waiting:
  description: The other run that must end first, as C(who); the action plugin then starts the module again.
  returned: if another run is changing the node's VFs
  type: dict
roce:
  description: The node as it is now, as M(dgxspark.cluster.roce_info) returns it.
  returned: success
  type: dict
findings:
  description: What prevents the change, each with C(id), C(severity), C(subject), C(message) and C(remedy).
  returned: failure
  type: list
  elements: dict
"""

import contextlib
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils import values
from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import module_runner
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import persist, vfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.sriov import Sriov
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.turn import RUN_OPTIONS, Turn, Waiting
from ansible_collections.dgxspark.cluster.plugins.module_utils.facts import read_node
from ansible_collections.dgxspark.cluster.plugins.module_utils.oserrors import reason
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric import restore
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain, to_plain

ARGUMENTS: dict[str, t.Any] = {
    "functions": {"type": "list", "elements": "dict", "default": []},
    "device_ids": {"type": "list", "elements": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "reset_stranded": {"type": "bool", "default": False},
    "trust": {"type": "bool"},
    "spoof_check": {"type": "bool"},
    "sysfs_root": {"type": "path", "default": "/sys"},
    "proc_root": {"type": "path", "default": "/proc"},
    "netns_root": {"type": "path", "default": "/run/netns"},
    "system_root": {"type": "path", "default": "/"},
    "run": {"type": "dict", "options": RUN_OPTIONS},
    "waited": {"type": "str"},
}


def gather(module: t.Any) -> values.Node:
    """Read the node."""
    given = module.params
    return read_node(
        Sysfs(given["sysfs_root"]),
        module_runner(module),
        device_ids=given["device_ids"],
        files=persist.PATHS,
        units=persist.UNITS,
        proc_root=given["proc_root"],
        netns_root=given["netns_root"],
        system_root=given["system_root"].rstrip("/"),
    )


def run(module: t.Any) -> dict[str, t.Any]:
    """Do the work while keeping other runs out; check mode changes nothing and takes no lock."""
    given = module.params
    options = vfs.Options(given["trust"], given["spoof_check"], given["reset_stranded"])
    planned = [from_plain(values.PlannedFunction, f, f"functions[{i}]") for i, f in enumerate(given["functions"])]
    root = given["system_root"].rstrip("/")
    host = restore.KernelHost(given["sysfs_root"], given["proc_root"], root + restore.RUN_DIR)
    sriov = Sriov(host, root, given["netns_root"])
    turn = Turn(given["run"], host.clock, root)
    try:
        with contextlib.nullcontext() if module.check_mode else sriov.alone(turn, given["waited"]):
            return work(module, sriov, planned, options, turn)
    except Waiting as exc:
        return {"changed": False, "changes": [], "waiting": {"who": str(exc)}}
    finally:
        for note in sriov.notes:
            module.warn(note)


def work(
    module: t.Any, sriov: Sriov, planned: t.Sequence[values.PlannedFunction], options: vfs.Options, turn: Turn
) -> dict[str, t.Any]:
    """Gather, decide, apply, gather again. The caller keeps other runs out."""
    given = module.params
    node = gather(module)
    before = sriov.journal(node)
    gone = vfs.gone(node, planned, before)

    def differences(now: values.Node) -> list[t.Any]:
        if given["state"] == "present":
            freed = vfs.stranded(now, planned) if options.reset_stranded else []
            return vfs.compare(now, gone) + vfs.drift(now, planned, options) + sriov.emptied(freed)
        return (vfs.compare(now, before) if before else []) + persist.removal_changes(now) + sriov.leftovers()

    changes = differences(node)
    if given["state"] == "present":
        vfs.refuse(vfs.refusals(node, planned, options) + vfs.removal_refusals(node, gone))
    elif before:
        vfs.refuse(vfs.removal_refusals(node, before))
    if not module.check_mode:
        if changes or (before and given["state"] == "absent"):
            turn.check()
        if changes and given["state"] == "present":
            sriov.present(node, planned, options, changes, gone)
        elif given["state"] == "absent" and (changes or before):
            sriov.absent(node, before or {"version": 1, "functions": []})
        if changes:
            node = gather(module)
            vfs.refuse([vfs.left(change) for change in differences(node)])
    return {**values.change_result(changes), "roce": to_plain(node)}


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    try:
        result = run(module)
    except CollectionError as exc:
        module.fail_json(msg=str(exc), changes=[], findings=to_plain(exc.findings))
    except OSError as exc:
        module.fail_json(
            msg=str(CollectionError(f"{exc.filename or 'A file'}: {reason(exc)}")), changes=[], findings=[]
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
