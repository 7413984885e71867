# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove K3s from a node with everything that it created: processes, mounts, interfaces, firewall rules, files. Nothing else."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import time
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils import node_files
from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import Run
from ansible_collections.dgxspark.cluster.plugins.module_utils.k3s import layout
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Change, CollectionError

# What K3s, its kubelet, containerd and flannel create on a node (k3s-killall.sh and k3s-uninstall.sh of k3s-io/k3s).
_MOUNTS = ("/run/k3s", "/var/lib/kubelet", "/run/netns/cni-")
_INTERFACES = ("cni0", "flannel.1", "flannel-v6.1", "kube-ipvs0", "flannel-wg", "flannel-wg-v6")
_FOLDERS = ("/var/lib/kubelet", "/var/lib/cni", "/run/k3s", "/run/flannel", "/etc/rancher/node", layout.ETC)
_CHAIN = re.compile(r"^(KUBE-|CNI-|FLANNEL-)")
_KILL_S = 10.0


def leftovers(data: str) -> list[Change]:
    """Return what removal would delete."""
    paths = [layout.unit_path(role) for role in layout.UNITS] + [
        layout.AT_BOOT,
        layout.BINARY,
        *_FOLDERS,
        data,
        layout.OURS,
    ]
    return [Change(path, "file", "there", None) for path in paths if pathlib.Path(path).exists()]


def remove(run: Run, data: str, *, roles: t.Sequence[str] = ("server", "agent"), keep_data: bool = False) -> None:
    """Stop K3s and remove it. keep_data: leave its folder, which existed before it."""
    for role in roles:
        run(["systemctl", "disable", "--now", layout.UNITS[role]])
        run(["systemctl", "reset-failed", layout.UNITS[role]])
    _end(_shims(data))
    for mount in _mounts():
        run(["umount", "--lazy", "--force", mount])
    left = _mounts()
    if left:
        # Folders of the node that a pod uses are still mounted there: removal would delete their contents.
        raise CollectionError(
            f"{left[0]} cannot be unmounted, so nothing below it is removed. See fuser -vm {left[0]}."
        )
    for namespace in sorted(pathlib.Path("/run/netns").glob("cni-*")):
        run(["ip", "netns", "delete", namespace.name])
    for interface in _INTERFACES:
        if pathlib.Path("/sys/class/net", interface).exists():
            run(["ip", "link", "delete", interface])
    for program in ("iptables", "ip6tables"):
        _clean_rules(run, program)
    for role in roles:
        node_files.remove(layout.unit_path(role))
    run(["systemctl", "daemon-reload"])
    for path in (*_FOLDERS, layout.AT_BOOT, layout.BINARY, *([] if keep_data else [data])):
        # A separate disk is emptied, but stays mounted.
        for inner in pathlib.Path(path).iterdir() if os.path.ismount(path) else [path]:
            node_files.remove(str(inner))
    for parent in ("/etc/rancher", str(pathlib.Path(layout.DATA).parent)):
        with contextlib.suppress(OSError):
            pathlib.Path(parent).rmdir()  # only if it is empty


def forget(*, cdi: bool = False) -> None:
    """Remove this collection's own files; cdi: also the CDI specification that it created."""
    if cdi:
        node_files.remove(layout.CDI)
    node_files.remove(layout.STAGING)
    node_files.remove(layout.OURS)
    with contextlib.suppress(OSError):
        pathlib.Path(layout.OURS).parent.rmdir()


def clean(saved: str) -> str:
    """Turn `iptables-save` into input for `iptables-restore --noflush` that removes the cluster's rules, and no others.

    Rules of other chains that jump to one of the cluster's, or carry flannel's comment, are deleted one by one; then
    the cluster's chains are flushed and deleted.
    """
    out: list[str] = []
    for block in re.findall(r"^\*(\S+)\n(.*?)^COMMIT$", saved, re.MULTILINE | re.DOTALL):
        table, lines = block[0], block[1].splitlines()
        chains = [line[1:].split()[0] for line in lines if line.startswith(":") and _CHAIN.match(line[1:])]
        rules = []
        for line in lines:
            words = line.split()
            if len(words) > 1 and words[0] == "-A" and not _CHAIN.match(words[1]):
                target = words[words.index("-j") + 1] if "-j" in words[:-1] else ""
                if _CHAIN.match(target) or "flanneld" in line:
                    rules.append("-D" + line[2:])
        if chains or rules:
            out += [f"*{table}", *rules, *(f"-F {chain}" for chain in chains), *(f"-X {chain}" for chain in chains)]
            out.append("COMMIT")
    return "".join(f"{line}\n" for line in out)


def _clean_rules(run: Run, program: str) -> None:
    rc, saved, _err = run([f"{program}-save"])
    commands = clean(saved) if rc == 0 else ""
    if not commands:
        return
    path = pathlib.Path(layout.OURS, f"{program}.rules")
    node_files.write(str(path), commands.encode(), 0o600)
    run([f"{program}-restore", "--noflush", str(path)])
    node_files.remove(str(path))


def _shims(data: str) -> list[int]:
    """Return the processes of pods: K3s's containerd shims and all their descendants."""
    parents: dict[int, int] = {}
    shims = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if words[0].decode(errors="replace").startswith(f"{data}/data/") and b"containerd-shim" in words[0]:
            shims.append(int(entry.name))
    found = list(shims)
    for pid in found:  # grows during the iteration
        found += [child for child, parent in parents.items() if parent == pid and child not in found]
    return found


def _end(pids: t.Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _KILL_S
    while time.monotonic() < deadline and any(pathlib.Path(f"/proc/{pid}/ns/net").exists() for pid in pids):
        time.sleep(0.1)


def _mounts() -> list[str]:
    try:
        lines = pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    paths = [line.split()[1] for line in lines]
    return sorted((path for path in paths if path.startswith(_MOUNTS)), reverse=True)
