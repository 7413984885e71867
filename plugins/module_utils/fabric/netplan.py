# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""netplan for the fabric, pure: what the file says, which device a stanza matches, who else claims it, what differs.

netplan itself checks only syntax: it accepts two stanzas for one device, and file names decide which of them wins.
"""

from __future__ import annotations

import hashlib
import re
import typing as t
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import routes
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    Change,
    CollectionError,
    Finding,
    Netdev,
    Netplan,
    NetplanFile,
    NetplanStanza,
    Node,
    PlannedFunction,
    PlannedHost,
    PlannedVf,
)

PATH = "/etc/netplan/90-dgxspark-fabric.yaml"
MODE = "0600"
DOWN_S = 60  # seconds that an interface may stay down while netplan is applied: 40 were seen with NetworkManager
PENDING = "/var/lib/dgxspark/netplan/pending"

MARK = "# Made by the Ansible role dgxspark.cluster.netplan_vf"
HEADER = f"""\
{MARK} from the fabric plan. It is overwritten by the next run:
# change dgxspark_fabric in the inventory instead.
"""

MANAGER = "NetworkManager"  # netplan's word for that renderer

# systemd names the VFs of `enp1s0f0np0` enp1s0f0v0 … (systemd.net-naming-scheme(7), SR-IOV).
_FUNCTION_NAME = re.compile(r"(en\w+?)(?:n\w+)?$")

_INTERFACE = re.compile(r"[^\s/:*?\[\]!]{1,15}")  # one interface's name, no pattern

# Kinds whose stanzas match existing devices; a stanza of any other kind creates a device of its own.
_MATCHED_KINDS = frozenset({"ethernets", "wifis", "modems", "nm-devices"})


@dataclass(frozen=True, slots=True)
class Device:
    """A network device, existing or only planned. `addresses` ("address/prefix") and `mtu` are the planned ones."""

    name: str | None = None
    mac: str | None = None
    driver: str | None = None
    addresses: tuple[str, ...] = ()
    mtu: int | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.mac})" if self.name and self.mac else self.name or self.mac or "?"


@dataclass(frozen=True, slots=True)
class Claim:
    """A stanza that configures a device, and its file."""

    file: str
    kind: str
    id: str

    def __str__(self) -> str:
        return f"stanza {self.kind}.{self.id} in {self.file}"


@dataclass(frozen=True, slots=True)
class Clash:
    """A device that more than one stanza configures. `fabric`: one of them is ours."""

    device: Device
    claims: tuple[Claim, ...]
    fabric: bool


@dataclass(frozen=True, slots=True)
class Foreign:
    """Conflicts in other files: stanzas to remove, and findings for those whose removal would affect other devices."""

    stanzas: tuple[Claim, ...] = ()
    findings: tuple[Finding, ...] = field(default=())


# --- what the file says ---------------------------------------------------------------------------------------------


def render(planned: PlannedHost, renderer: str | None = None) -> dict[str, t.Any]:
    """Return netplan's tree for a host: every VF with its address, every function with its MTU only.

    renderer: the node's. NetworkManager is set stanza by stanza: set for the whole file it would also switch the node's
    other stanzas; networkd is netplan's default.
    """
    ethernets: dict[str, t.Any] = {}
    for function in planned.functions:
        ethernets[f"dgx-{function.slot}"] = _stanza({"name": function.netdev}, function.mtu, [], renderer)
        for vf in function.vfs:
            name = _exact_name(function, vf) if renderer == MANAGER else _pattern(function)
            match = {"macaddress": vf.mac, **({"name": name} if name else {})}
            ethernets[_vf_id(function, vf)] = _stanza(match, vf.mtu, [f"{vf.address}/{vf.prefix}"], renderer)
    return {"network": {"version": 2, "ethernets": ethernets}}


def _vf_id(function: PlannedFunction, vf: PlannedVf) -> str:
    return f"dgx-{function.slot}v{vf.index}"


def _exact_name(function: PlannedFunction, vf: PlannedVf) -> str | None:
    # NetworkManager gives a new configuration only to devices that were disconnected before. `netplan apply` disconnects and
    # flushes those that it finds by a line `interface-name=` of their profile (netplan_cli/cli/utils.py, nm_interfaces); for a
    # name with a glob src/nm.c writes `interface-name=en*;`, which is no device's name, and without a name no such line.
    if vf.netdev:
        return vf.netdev
    match = _FUNCTION_NAME.match(function.netdev)
    return f"{match[1]}v{vf.index}" if match else None


def with_names(planned: PlannedHost, netplan: Netplan, path: str = PATH) -> PlannedHost:
    """Return a host's plan with the names of VFs that are in a pod or not there yet, for NetworkManager only.

    They are those in our file on the node, so that its text stays the same, or else those that systemd gives.
    """
    if netplan.renderer != MANAGER:
        return planned
    stanzas = {s.id: s.match.get("name") for file in netplan.files if file.path == path for s in file.stanzas}
    kept = {id_: name for id_, name in stanzas.items() if isinstance(name, str) and _INTERFACE.fullmatch(name)}
    functions = []
    for function in planned.functions:
        names = [vf.netdev or kept.get(_vf_id(function, vf)) or _exact_name(function, vf) for vf in function.vfs]
        vfs = [replace(vf, netdev=name) for vf, name in zip(function.vfs, names, strict=True)]
        functions.append(replace(function, vfs=tuple(vfs)))
    return replace(planned, functions=tuple(functions))


def _pattern(function: PlannedFunction) -> str | None:
    # With an MTU, netplan writes a .link file beside the .network file. If the MAC is the only match, udev uses that file for
    # the VF instead of 99-default.link, and since it has no NamePolicy= the VF ends up as eth0. The kernel's name (ethN),
    # which .link files are matched against, does not begin with "en"; the final name does.
    return "en*" if function.netdev.startswith("en") else None


def _stanza(match: dict[str, str], mtu: int, addresses: list[str], renderer: str | None) -> dict[str, t.Any]:
    stanza: dict[str, t.Any] = {
        "match": match,
        **({"addresses": addresses} if addresses else {}),
        "dhcp4": False,
        "dhcp6": False,
        "link-local": [],
        "mtu": mtu,
        "optional": True,
    }
    if renderer == MANAGER:
        # For NetworkManager netplan turns "no address" and "link-local: []" into method=link-local and method=ignore, that
        # is, 169.254 and fe80 addresses.
        methods = {"ipv6.method": "disabled", **({} if addresses else {"ipv4.method": "disabled"})}
        stanza |= {"renderer": renderer, "networkmanager": {"passthrough": methods}}
    return stanza


def planned_devices(planned: PlannedHost) -> list[Device]:
    """Return the devices that a host's plan configures, with their planned addresses and MTUs."""
    devices = []
    for function in planned.functions:
        devices.append(Device(function.netdev, function.mac, mtu=function.mtu))
        devices += [
            Device(vf.netdev, vf.mac, addresses=(f"{vf.address}/{vf.prefix}",), mtu=vf.mtu) for vf in function.vfs
        ]
    return devices


def own_file(tree: t.Mapping[str, t.Any], content: str, path: str) -> NetplanFile:
    """Return a rendered tree in the form in which a node's files are described."""
    stanzas = tuple(
        NetplanStanza(kind="ethernets", id=name, match=dict(stanza["match"]))
        for name, stanza in tree["network"]["ethernets"].items()
    )
    return NetplanFile(path=path, sha256=digest(content), mode=MODE, stanzas=stanzas)


def is_ours(text: str) -> bool:
    """Whether a file's text was written by us (or is blank), so that it may be overwritten and removed."""
    return not text.strip() or text.startswith(MARK)


def occupied(path: str) -> Finding:
    """Return the finding for a file of the owner where ours is to be."""
    message = f"this file was not made by this collection: it does not begin with `{MARK}`. It is kept as it is."
    remedy = "Give it another name (netplan reads every file of that folder that ends in .yaml), or set netplan_vf_path to another file."
    return Finding("netplan.occupied", "error", path, message, remedy)


def digest(content: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(content.encode()).hexdigest()


# --- which device a stanza means ------------------------------------------------------------------------------------


def is_meant(stanza: NetplanStanza, device: Device) -> bool:
    """Whether a stanza configures a device: by its id if it has no match, else by all conditions of its match."""
    if stanza.kind not in _MATCHED_KINDS:
        return False
    match = stanza.match
    if not match:
        return device.name == stanza.id
    if "name" in match and not _fits(device.name, match["name"], any_case=False):
        # set-name renames the device: the stanza matches it under its old name and under the new one
        return stanza.set_name is not None and device.name == stanza.set_name and _others_fit(match, device)
    return _others_fit(match, device)


def _others_fit(match: t.Mapping[str, t.Any], device: Device) -> bool:
    return ("macaddress" not in match or _same_mac(device.mac, match["macaddress"])) and (
        "driver" not in match or _fits(device.driver, match["driver"], any_case=True)
    )


def _fits(value: str | None, patterns: t.Any, *, any_case: bool) -> bool:
    if value is None:
        return False
    for pattern in patterns if isinstance(patterns, (list, tuple)) else [patterns]:
        text, inverted = str(pattern).removeprefix("!"), str(pattern).startswith("!")
        fits = fnmatchcase(value.lower(), text.lower()) if any_case else fnmatchcase(value, text)
        if fits != inverted:
            return True
    return False


def names_fit(name: str, patterns: t.Any) -> bool:
    """Whether a stanza's match includes an interface's name."""
    return _fits(name, patterns, any_case=False)


def _same_mac(mac: str | None, wanted: t.Any) -> bool:
    return mac is not None and mac.lower() == normal_mac(wanted)


def normal_mac(value: t.Any) -> str:
    """Return a MAC in lower case. YAML 1.1 reads an unquoted MAC of digits as a base-60 number."""
    if isinstance(value, int) and not isinstance(value, bool):
        digits = []
        for _digit in range(6):
            value, digit = divmod(value, 60)
            digits.append(f"{digit:02d}")
        return ":".join(reversed(digits))
    return str(value).lower().replace("-", ":")


# --- who else claims it ---------------------------------------------------------------------------------------------


def unreadable(files: Sequence[NetplanFile]) -> list[Finding]:
    """Return a finding for each file that could not be parsed: its claims are unknown."""
    return [
        Finding(
            "netplan.unreadable",
            "error",
            file.path,
            f"this netplan file cannot be read ({file.error}), so the interfaces it configures are unknown.",
            "Correct it or move it away.",
        )
        for file in files
        if file.error
    ]


def find_clashes(files: Sequence[NetplanFile], devices: Sequence[Device], own_path: str) -> list[Clash]:
    """Return the devices that more than one stanza configures.

    netplan merges stanzas with the same kind and id from several files into one; a merge with ours is a clash too.
    """
    clashes = []
    for device in devices:
        claims = tuple(
            Claim(file.path, stanza.kind, stanza.id)
            for file in files
            for stanza in file.stanzas
            if is_meant(stanza, device)
        )
        ours = any(claim.file == own_path for claim in claims)
        several = len({(c.kind, c.id) for c in claims}) > 1 or (ours and len({c.file for c in claims}) > 1)
        if several:
            clashes.append(Clash(device, claims, ours))
    same_ids = _merged_with_ours(files, own_path)
    known = {claim for clash in clashes for claim in clash.claims}
    clashes += [Clash(Device(name=None), (own, other), True) for own, other in same_ids if other not in known]
    return clashes


def _merged_with_ours(files: Sequence[NetplanFile], own_path: str) -> list[tuple[Claim, Claim]]:
    own = {(s.kind, s.id) for file in files if file.path == own_path for s in file.stanzas}
    return [
        (Claim(own_path, s.kind, s.id), Claim(file.path, s.kind, s.id))
        for file in files
        if file.path != own_path
        for s in file.stanzas
        if (s.kind, s.id) in own
    ]


def judge_clashes(
    files: Sequence[NetplanFile], devices: Sequence[Device], own_path: str, foreign_stanzas: str
) -> Foreign:
    """Resolve clashes: absorb stanzas of other files that affect only fabric devices, refuse the rest.

    foreign_stanzas: `refuse` or `absorb`.
    """
    clashes = find_clashes(files, devices, own_path)
    absorb = foreign_stanzas == "absorb"
    taken: dict[Claim, None] = {}
    findings = unreadable(files)
    for clash in clashes:
        if not clash.fabric:
            findings.append(_refusal(clash, "Keep only one of them."))
            continue
        others = [claim for claim in clash.claims if claim.file != own_path]
        needed = [text for claim in others for text in _needed_by(claim, files)]
        if needed:
            findings.append(_refusal(clash, _NEEDED.format(", ".join(needed))))
            continue
        if not absorb:
            findings.append(
                _refusal(clash, "Remove the other one, or let the role do it with netplan_vf_foreign_stanzas: absorb.")
            )
            continue
        for claim in others:
            beside = _devices_beside(claim, files, devices, own_path)
            if beside:
                findings.append(
                    _refusal(
                        clash,
                        f"The {claim} cannot be absorbed, because it also configures {', '.join(map(str, beside))}: "
                        "narrow its match by hand.",
                    )
                )
            else:
                taken[claim] = None
    return Foreign(tuple(taken), tuple(dict.fromkeys(findings)))


_NEEDED = (
    "It cannot be absorbed, because {}: without it netplan refuses that file. The interface belongs to something else: remove "
    "it there by hand, along with what refers to it, or leave its port out of dgxspark_fabric.ports."
)


def _needed_by(claim: Claim, files: Sequence[NetplanFile]) -> list[str]:
    """Return in words the stanzas (a bond, a VLAN) that refer to this one."""
    return [
        f"{stanza.kind}.{stanza.id} in {file.path} refers to {claim.kind}.{claim.id}"
        for file in files
        for stanza in file.stanzas
        if claim.id in stanza.refers and (file.path, stanza.kind, stanza.id) != (claim.file, claim.kind, claim.id)
    ]


def _devices_beside(
    claim: Claim, files: Sequence[NetplanFile], devices: Sequence[Device], own_path: str
) -> list[Device]:
    """Return the devices that a stanza configures and our file does not."""
    stanzas = [s for f in files for s in f.stanzas if (s.kind, s.id) == (claim.kind, claim.id) and f.path == claim.file]
    ours = [s for f in files if f.path == own_path for s in f.stanzas]
    return [
        device
        for device in devices
        if any(is_meant(stanza, device) for stanza in stanzas) and not any(is_meant(own, device) for own in ours)
    ]


def _refusal(clash: Clash, remedy: str) -> Finding:
    first, second = clash.claims[0], clash.claims[1]
    if clash.device.name is None and clash.device.mac is None:
        return Finding(
            "netplan.clash",
            "error",
            second.file,
            f"the {second} has the same id as the {first}: netplan merges them.",
            remedy,
        )
    return Finding(
        "netplan.clash",
        "error",
        str(clash.device),
        f"{' and the '.join(('the ' if i == 0 else '') + str(c) for i, c in enumerate(clash.claims))} all configure it; "
        "netplan accepts that, and the file names decide which one wins."
        if len(clash.claims) > 2
        else f"the {first} and the {second} both configure it; netplan accepts that, and the file names "
        "decide which one wins.",
        remedy,
    )


def refuse(findings: Sequence[Finding]) -> None:
    """Raise a CollectionError for findings, if there are any."""
    if findings:
        raise CollectionError("\n".join(map(str, findings)), findings=findings)


# --- what applying interrupts ---------------------------------------------------------------------------------------


def interrupts(netplan: Netplan, name: str) -> Claim | None:
    """Return the stanza for which `netplan apply` takes an interface down, whatever has changed; None if there is none.

    netplan disconnects each device whose exact name is in a profile that it wrote for NetworkManager, and restarts what Wi-Fi
    depends on (netplan_cli/cli/commands/apply.py). systemd-networkd keeps what has not changed.
    """
    for file in netplan.files:
        for stanza in file.stanzas:
            match, wifi = stanza.match, stanza.kind == "wifis"
            exact = name in ((stanza.set_name, match.get("name")) if match else (stanza.id, stanza.set_name))
            managed = (stanza.renderer or netplan.renderer) == MANAGER
            any_wifi = (
                wifi and name.startswith("wl") and names_fit(name, match.get("name", "*" if match else stanza.id))
            )
            if (exact and (managed or wifi)) or any_wifi:
                return Claim(file.path, stanza.kind, stanza.id)
    return None


def interruptions(node: Node) -> list[Finding]:
    """Return a finding for each interface outside the fabric that `netplan apply` takes down for a while."""
    return [
        Finding(
            "netplan.interrupts",
            "info",
            netdev.name,
            f"`netplan apply` takes this interface ({', '.join(netdev.ipv4)}) down for up to {DOWN_S} s, because of the {claim}. "
            "Nothing reaches the node over it in that time.",
            f"If Ansible comes over it, its timer for going back is {DOWN_S} s longer than netplan_vf_rollback_timeout. Choose a "
            "time when a pause does no harm.",
        )
        for netdev in node.other
        if (claim := interrupts(node.netplan, netdev.name))
    ]


# --- what differs ---------------------------------------------------------------------------------------------------


def node_devices(node: Node) -> list[Device]:
    """Return the devices of a node as roce_info read them (others than the fabric's only with an IPv4 address)."""
    devices = [_device(netdev, None) for netdev in node.other]
    for function in node.functions:
        devices += [_device(function.netdev, function.driver)] if function.netdev else []
        devices += [_device(vf.netdev, vf.driver) for vf in function.vfs if vf.netdev and vf.place.state == "host"]
    return devices


def _device(netdev: Netdev, driver: str | None) -> Device:
    return Device(netdev.name, netdev.mac, driver)


def merge_devices(there: Sequence[Device], planned: Sequence[Device]) -> list[Device]:
    """Return the node's devices and those only planned; planned values are merged into the existing device."""
    merged = list(there)
    for plan in planned:
        for at, device in enumerate(merged):
            if (plan.mac and device.mac and plan.mac.lower() == device.mac.lower()) or (
                plan.name and plan.name == device.name and not (plan.mac and device.mac and plan.addresses)
            ):
                merged[at] = Device(device.name, device.mac, device.driver, plan.addresses, plan.mtu)
                break
        else:
            merged.append(plan)
    return merged


def live_changes(planned: Sequence[Device], links: t.Mapping[str, Netdev]) -> list[Change]:
    """Return which of the plan's IPv4 addresses, their routes and MTUs the existing devices lack.

    links: the host's devices by name.
    """
    by_mac = {netdev.mac.lower(): netdev for netdev in links.values() if netdev.mac}
    changes = []
    for device in planned:
        netdev = by_mac.get((device.mac or "").lower()) if device.addresses else links.get(device.name or "")
        if netdev is None:
            continue
        missing = [address for address in device.addresses if address not in netdev.ipv4]
        if missing:
            changes.append(Change(netdev.name, "IPv4", list(netdev.ipv4), list(device.addresses)))
        if device.mtu is not None and netdev.mtu is not None and netdev.mtu != device.mtu:
            changes.append(Change(netdev.name, "MTU", netdev.mtu, device.mtu))
        changes += routes.lost(netdev, device.addresses)
    return changes


def drift(
    node: Node,
    planned: PlannedHost,
    content: str,
    *,
    path: str = PATH,
) -> list[Change]:
    """Return the differences between a node (as roce_info read it) and its plan. Empty: nothing to do.

    content: the file's text (`render`, dumped). Compares files, modes, an unconfirmed change, foreign stanzas for our devices,
    and addresses and MTUs of the VFs that are on the host.
    """
    changes = []
    there = next((file for file in node.netplan.files if file.path == path), None)
    if node.netplan.pending:
        changes.append(Change(PENDING, "unconfirmed change", node.netplan.pending, None))
    wanted = digest(content)
    if there is None or there.sha256 != wanted:
        changes.append(Change(path, "file", f"sha256 {there.sha256[:12]}" if there else None, f"sha256 {wanted[:12]}"))
    elif int(there.mode or "0", 8) != int(MODE, 8):
        changes.append(Change(path, "mode", there.mode, MODE))
    ours = own_file(render(planned, node.netplan.renderer), content, path)
    files = [ours, *(file for file in node.netplan.files if file.path != path)]
    devices = merge_devices(node_devices(node), planned_devices(planned))
    changes += [
        Change(str(clash.device), "netplan stanzas", [str(claim) for claim in clash.claims], f"{path} alone")
        for clash in find_clashes(files, devices, path)
    ]
    changes += [Change(finding.subject, "netplan file", "cannot be read", None) for finding in unreadable(files)]
    links = {
        netdev.name: netdev
        for function in node.functions
        for netdev in (
            function.netdev,
            *(vf.netdev for vf in function.vfs if vf.place.state == "host"),
        )
        if netdev
    }
    return changes + live_changes(planned_devices(planned), links) + _moved(node, planned)


def refusals(
    node: Node, planned: PlannedHost, content: str, *, path: str = PATH, foreign_stanzas: str = "refuse"
) -> list[Finding]:
    """Return why netplan's file cannot be written, from what roce_info read of the node's files.

    The module decides again on the node, where it sees every device.
    """
    others = [file for file in node.netplan.files if file.path != path]
    service = "NetworkManager.service" if node.netplan.renderer == "NetworkManager" else "systemd-networkd.service"
    masked = Finding(
        "netplan.masked",
        "error",
        service,
        "it is masked on this node, but the netplan file relies on it: no interface would be configured.",
        f"`systemctl unmask {service}`, or make the node's other renderer that of its netplan files.",
    )
    found = [masked] if node.netplan.service == "masked" else []
    found += [occupied(path) for file in node.netplan.files if file.path == path and file.ours is False]
    ours = own_file(render(planned, node.netplan.renderer), content, path)
    devices = merge_devices(node_devices(node), planned_devices(planned))
    return found + list(judge_clashes([ours, *others], devices, path, foreign_stanzas).findings)


def _moved(node: Node, planned: PlannedHost) -> list[Change]:
    """Return the address changes of VFs whose MAC must change first: their planned MAC does not match them yet."""
    changes = []
    for function in planned.functions:
        there = node.function(function.pci, function.netdev)
        on_host = {vf.index: vf.netdev for vf in (there.vfs if there else ()) if vf.place.state == "host"}
        for vf in function.vfs:
            netdev, address = on_host.get(vf.index), f"{vf.address}/{vf.prefix}"
            if netdev is None or (netdev.mac or "").lower() == vf.mac.lower():
                continue
            if netdev.ipv4 and address not in netdev.ipv4:
                changes.append(Change(netdev.name, "IPv4", list(netdev.ipv4), [address]))
    return changes
