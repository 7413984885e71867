# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node keeps so that its VFs survive a reboot and a stay in a pod: nothing here touches a file.

The controller compares digests of this with what `roce_info` read, the module writes it: both make the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import record
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric import restore
from ansible_collections.dgxspark.cluster.plugins.module_utils.source import archive_of
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Change, Node

CONFIG = restore.CONFIG
SCRIPT = "/usr/local/lib/dgxspark/fabric-restore"
UNIT = "dgxspark-fabric.service"
UNIT_PATH = f"/etc/systemd/system/{UNIT}"
RETURN_UNIT_PATH = "/etc/systemd/system/dgxspark-fabric-vf@.service"
RULE = "/etc/udev/rules.d/85-dgxspark-fabric.rules"
JOURNAL = record.JOURNAL

# What roce_info reads, so that the controller can tell the difference.
PATHS = (CONFIG, SCRIPT, UNIT_PATH, RETURN_UNIT_PATH, RULE)
UNITS = (UNIT,)

Files = dict[str, tuple[bytes, str]]

_HEAD = "# Written by the Ansible role dgxspark.cluster.sriov_roce; its next run undoes changes by hand.\n"

_BOOT = f"""{_HEAD}[Unit]
Description=VFs, MACs, MTU and ARP settings of the RoCE fabric
DefaultDependencies=no
RequiresMountsFor={SCRIPT} {CONFIG}
After=systemd-modules-load.service systemd-udev-trigger.service systemd-sysctl.service
Wants=network-pre.target
Before=network-pre.target shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/python3 -I -S {SCRIPT} boot
TimeoutStartSec=120

[Install]
WantedBy=multi-user.target
"""

_RETURN = f"""{_HEAD}[Unit]
Description=Fabric settings of %i, which has come back
DefaultDependencies=no
After={UNIT}
Before=shutdown.target
Conflicts=shutdown.target
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart=/usr/bin/python3 -I -S {SCRIPT} dev %i
TimeoutStartSec=120
"""


def program() -> bytes:
    """Return the restorer with what it imports: one file on the node, which is replaced whole."""
    return archive_of(restore)


def _rule(document: t.Mapping[str, t.Any]) -> str:
    """Return the udev rule: numbered after 80-net-setup-link, so that $name is the interface's final name.

    An active run (its mark names the process) handles the interfaces itself. A VF matches by its function's address, a
    function only once the run at boot has begun. SYSTEMD_WANTS would not work: the rename's own event removes that property
    before systemd has seen it. "restart", because a unit that is still running started too early.
    """
    lines = [
        _HEAD + 'ACTION!="add", GOTO="dgxspark_fabric_end"',
        'SUBSYSTEM!="net", GOTO="dgxspark_fabric_end"',
        f'IMPORT{{file}}="{restore.RUN_DIR}/busy"',
        'ENV{DGXSPARK_BUSY}=="?*", TEST=="/proc/$env{DGXSPARK_BUSY}", GOTO="dgxspark_fabric_end"',
    ]
    start = 'RUN+="/usr/bin/systemctl --no-block restart dgxspark-fabric-vf@$name.service"'
    for function in document["functions"]:
        pci = function["pci"]
        lines += [
            f'ATTR{{device/physfn/uevent}}=="*PCI_SLOT_NAME={pci}*", {start}',
            f'KERNELS=="{pci}", TEST!="device/physfn", TEST=="{restore.RUN_DIR}/booted", {start}',
        ]
    return "\n".join([*lines, 'LABEL="dgxspark_fabric_end"', ""])


def managed_files(document: t.Mapping[str, t.Any], restorer: bytes) -> Files:
    """Return path -> (content, mode) of everything that the node keeps for this document (see programs/fabric/restore.py)."""
    return {
        CONFIG: (f"{json.dumps(document, indent=1, sort_keys=True)}\n".encode(), "0644"),
        SCRIPT: (restorer, "0755"),
        UNIT_PATH: (_BOOT.encode(), "0644"),
        RETURN_UNIT_PATH: (_RETURN.encode(), "0644"),
        RULE: (_rule(document).encode(), "0644"),
    }


def file_changes(node: Node, files: Files) -> list[Change]:
    """Return how the node's files and units (as roce_info read them) differ from the plan."""
    there = {state.path: state for state in node.files}
    changes = []
    for path, (content, mode) in files.items():
        state = there.get(path)
        digest = hashlib.sha256(content).hexdigest()
        if state is None or state.sha256 is None:
            changes.append(Change(path, "file", None, f"sha256 {digest[:12]}"))
        elif state.sha256 != digest:
            changes.append(Change(path, "file", f"sha256 {state.sha256[:12]}", f"sha256 {digest[:12]}"))
        elif state.mode is not None and int(state.mode, 8) != int(mode, 8):
            changes.append(Change(path, "mode", state.mode, mode))
    changes += _failures(node)
    enabled = node.units.get(UNIT)
    if enabled != "enabled":
        changes.append(Change(UNIT, "unit", enabled, "enabled"))
    return changes


def removal_changes(node: Node) -> list[Change]:
    """Return which of our files and units would be removed."""
    changes = [
        Change(f.path, "file", f"sha256 {f.sha256[:12]}", None) for f in node.files if f.path in PATHS and f.sha256
    ]
    changes += _failures(node)
    if node.units.get(UNIT) == "enabled":
        changes.insert(0, Change(UNIT, "unit", "enabled", None))
    return changes


def _failures(node: Node) -> list[Change]:
    """Return our units that failed once: a run that does their work itself lets systemd forget that."""
    return [Change(unit, "state", "failed", None) for unit in node.failed if unit.startswith("dgxspark-fabric")]
