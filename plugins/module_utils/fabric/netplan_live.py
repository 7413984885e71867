# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why an interface lacks what netplan's files give it: what won instead. Reads only.

netplan's files become systemd-networkd files below /run/systemd/network. An interface gets the first file by name that
matches it, whoever wrote it; applying netplan again does not change that. With NetworkManager they become connection
profiles, and an owner's profile may be the one that is active.
"""

from __future__ import annotations

import pathlib
import re
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.dgxspark.cluster.plugins.module_utils import foreign
from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import Run
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import netplan, routes
from ansible_collections.dgxspark.cluster.plugins.module_utils.facts import read_links
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.system import read_system, unit_state
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Change, Finding, Netdev

NETWORKD, MANAGER = "systemd-networkd.service", "NetworkManager.service"
_MADE_BY_NETPLAN = "/run/systemd/network/10-netplan-"
_DROPS = ("/etc/systemd/network", "/run/systemd/network")
_OURS = "10-netplan-dgx-*.network.d/*.conf"
_MTU = re.compile(r"^\s*MTUBytes\s*=\s*(\d+[KMG]?)\s*$", re.MULTILINE)
_DROP_IN_MOST = 65536  # bytes of a drop-in that are read
_RULES = ("/etc/udev/rules.d", "/run/udev/rules.d")
_FIELD = re.compile(r"^\s*(Network File|Link File):\s*(\S.*?)\s*$", re.MULTILINE)
_NAMES = re.compile(r"\bNAME:?=\"")


@dataclass(frozen=True, slots=True)
class Used:
    """The files that systemd uses for an interface; None if it reports none, or cannot be asked."""

    network: str | None = None
    link: str | None = None


def read_live(run: Run, sysfs: Sysfs) -> dict[str, Netdev]:
    """Return the node's interfaces by name, with their addresses and routes."""
    found = routes.read(run)
    return {
        name: replace(
            sysfs.netdev(name),
            routes=None if found is None else found.get(name, ()),
            ipv4=tuple(
                f"{address['local']}/{address['prefixlen']}"
                for address in link.get("addr_info", ())
                if address.get("family") == "inet"
            ),
        )
        for name, link in read_links(run).items()
    }


def masked(run: Run, content: str | None) -> str | None:
    """Return a warning if the service that netplan's file is for is masked, so that nothing reads the file."""
    if content is None:
        return None
    unit, other = (MANAGER, "networkd") if f"renderer: {netplan.MANAGER}" in content else (NETWORKD, netplan.MANAGER)
    if unit_state(run, unit)[0] != "masked":
        return None
    return (
        f"{unit} is masked on this node, but the netplan file relies on it: no interface is configured. Unmask it "
        f"(`systemctl unmask {unit}`), or make {other} the renderer of the node's netplan files."
    )


@dataclass(frozen=True, slots=True)
class Managed:
    """What NetworkManager does with an interface; None if it cannot be asked."""

    state: str | None = None  # such as "connected" or "unmanaged"
    profile: str | None = None  # the name of the active connection


def managed(run: Run, name: str) -> Managed:
    """Return what NetworkManager does with an interface, from `nmcli`."""
    fields = "GENERAL.STATE,GENERAL.CONNECTION"
    rc, out, _err = run(["nmcli", "--escape", "no", "--get-values", fields, "device", "show", name])
    state, profile = [*out.splitlines(), "", ""][:2] if rc == 0 else ("", "")
    return Managed(state.partition("(")[2].rstrip(")") or None, foreign.line(profile, 80).strip() or None)


def used(run: Run, name: str) -> Used:
    """Return the files that systemd uses for an interface, from `networkctl`."""
    rc, out, _err = run(["networkctl", "--no-pager", "--lines=0", "status", name])
    seen = dict(_FIELD.findall(out)) if rc == 0 else {}
    network, link = (seen.get(key) for key in ("Network File", "Link File"))
    return Used(*(path if path and path.startswith("/") else None for path in (network, link)))


def winners(
    run: Run, path: str, changes: t.Sequence[Change], links: t.Mapping[str, Netdev], system_root: str = ""
) -> list[Finding]:
    """Return what wins over netplan's file for the interfaces that lack something. Empty: no known cause.

    path: our netplan file. changes: what the interfaces lack, from `netplan.live_changes`. links: the interfaces by name.
    """
    lacking = [change for change in changes if change.what in ("IPv4", "MTU")]
    stanzas = [
        stanza
        for file in (read_system(run, system_root=system_root)[0].files if lacking else ())
        if file.path == path
        for stanza in file.stanzas
    ]
    by_manager = any(stanza.renderer == netplan.MANAGER for stanza in stanzas)
    findings: dict[tuple[str, str], Finding] = {}
    for change in lacking:
        name = change.subject
        files = used(run, name)
        # networkd goes on to name a file that has been moved away until netplan has it read its files again.
        if files.network and not pathlib.Path(system_root + files.network).exists():
            files = Used(None, files.link)
        netdev = links.get(name)
        lacks = f"it lacks {change.what} {_shown(change.after)}"
        patterns = [
            str(pattern)
            for stanza in stanzas
            if netdev and netdev.mac and str(stanza.match.get("macaddress", "")).lower() == netdev.mac.lower()
            for pattern in [stanza.match.get("name")]
            if pattern is not None and not netplan.names_fit(name, pattern)
        ]
        if files.network and not files.network.startswith(_MADE_BY_NETPLAN):
            message = (
                f"{lacks}: {files.network} configures it, and takes precedence over netplan's file because of its name."
            )
            remedy = f"Move {files.network} away, or exclude {name} from its [Match]; then run again."
            findings.setdefault((name, "outranked"), Finding("netplan.outranked", "error", name, message, remedy))
        elif drops := _drop_ins(files.network, system_root):
            message = f"{lacks}: {' and '.join(drops)} overrides what {files.network} sets."
            remedy = f"Remove its lines about {change.what}, and run again."
            findings.setdefault((name, "outranked"), Finding("netplan.outranked", "error", name, message, remedy))
        elif patterns:
            by = _namer(files, system_root)
            message = f"{lacks}: {path} matches an interface with its MAC and the name `{patterns[0]}`, but it is called {name}{by}."
            remedy = "Remove that, and reboot the node, so that it has its usual name again; then run again."
            findings.setdefault((name, "renamed"), Finding("netplan.renamed", "error", name, message, remedy))
        elif by_manager and (found := _manager_wins(run, name, lacks)):
            findings.setdefault((name, "outranked"), found)
    return list(findings.values())


def _manager_wins(run: Run, name: str, lacks: str) -> Finding | None:
    """Return what NetworkManager does instead of netplan's profile."""
    does = managed(run, name)
    if does.state == "unmanaged":
        message = f"{lacks}: NetworkManager leaves it alone (unmanaged), although netplan's file is for NetworkManager."
        remedy = (
            "Take it out of `unmanaged-devices` in /etc/NetworkManager/conf.d, and out of udev rules with NM_UNMANAGED; "
            f"`systemctl reload NetworkManager; nmcli device set {name} managed yes`; then run again."
        )
    elif does.profile and not does.profile.startswith("netplan-dgx-"):
        message = f"{lacks}: NetworkManager's connection {does.profile!r} is active on it instead of netplan's."
        remedy = (
            "Delete that connection, or bind it to another interface (`nmcli connection modify … connection.interface-name …`); "
            "then run again."
        )
    else:
        return None
    return Finding("netplan.outranked", "error", name, message, remedy)


def _drop_ins(network: str | None, system_root: str) -> list[str]:
    """Return an owner's drop-in files beside a file of systemd-networkd."""
    name = pathlib.PurePath(network).name if network else None
    places = [f"{folder}/{name}.d" for folder in _DROPS] if name else []
    return [
        f"{place}/{file.name}" for place in places for file in sorted(pathlib.Path(system_root + place).glob("*.conf"))
    ]


def narrowing(devices: t.Sequence[netplan.Device], system_root: str = "") -> list[Finding]:
    """Return a finding for each owner's drop-in that gives interfaces of the fabric another MTU whenever networkd configures them.

    Role sriov_roce sets the MTU, too, so that nothing is lacking until then.
    """
    planned = {str(device.mtu) for device in devices if device.mtu is not None}
    findings = []
    for folder in _DROPS:
        for file in sorted(pathlib.Path(system_root + folder).glob(_OURS)):
            try:
                text = file.read_bytes()[:_DROP_IN_MOST].decode("utf-8", "replace")
            except OSError:
                continue
            others = [value for value in _MTU.findall(text) if value not in planned]
            if others:
                path = f"{folder}/{file.parent.name}/{file.name}"
                message = (
                    f"its line MTUBytes={others[-1]} takes precedence over netplan's file: the planned MTU would hold only until "
                    "the interface is configured again, as at the next boot."
                )
                remedy = "Remove that line, `networkctl reload`, then run again."
                findings.append(Finding("netplan.outranked", "error", path, message, remedy))
    return findings


def _namer(files: Used, system_root: str) -> str:
    """Return in words what may have named an interface."""
    if files.link and files.link.startswith("/etc/"):
        return f", by {files.link}"
    rules = []
    for folder in _RULES:
        place = pathlib.Path(system_root + folder)
        for rule in sorted(place.glob("*.rules")) if place.is_dir() else ():
            try:
                text = rule.read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            if any(_NAMES.search(line) for line in text.splitlines() if not line.lstrip().startswith("#")):
                rules.append(f"{folder}/{rule.name}")
    return f", by {' or '.join(rules)}" if rules else ", by a udev rule or a .link file"


def _shown(value: t.Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
