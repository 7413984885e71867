# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wanted state of a node's functions and VFs, how the current state differs, and what prevents a change.

Pure: it compares values. The *document* (its form is in programs/fabric/restore.py) is what a node keeps and restores at boot.
"""

from __future__ import annotations

import dataclasses
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import netplan, persist, record
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    Arp,
    Change,
    CollectionError,
    Finding,
    Function,
    Netdev,
    Node,
    PlannedFunction,
    Vf,
)

# All fabric interfaces of a node may share a wire: each must answer only for its own addresses.
ARP = {"arp_ignore": 1, "arp_announce": 2, "rp_filter": 2}

EXCLUSIVE = "its namespace mode is `exclusive`: a pod that gets a VF does not get the VF's RDMA device."
SHARE = (
    "Make it shared: `rdma system set netns shared` while no pod runs (the kernel refuses it while there are other "
    "network namespaces). To keep it across reboots, remove `netns_mode=0` for ib_core from /etc/modprobe.d, and `rdma "
    "system set` from what runs at boot."
)

Document = dict[str, t.Any]
Entry = t.Mapping[str, t.Any]


@dataclass(frozen=True, slots=True)
class Options:
    """An owner's choices. None leaves trust or spoof check at the kernel's setting."""

    trust: bool | None = None
    spoof_check: bool | None = None
    reset_stranded: bool = False


# --- documents --------------------------------------------------------------------------------------------------------


def desired(node: Node, planned: t.Sequence[PlannedFunction], options: Options = Options()) -> Document:
    """Return the document of a plan. A function without a PCI address that the node does not have is left out."""
    functions = []
    for plan in planned:
        function = node.function(plan.pci, plan.netdev)
        pci = function.pci if function else plan.pci
        if pci is None:
            continue
        functions.append(
            {
                "slot": plan.slot,
                "pci": pci,
                "vf_count": len(plan.vfs),
                "mtu": max([plan.mtu, *(vf.mtu for vf in plan.vfs)]),
                "up": True,
                "eswitch": "legacy",
                "arp": dict(ARP),
                "vfs": [
                    {
                        "index": vf.index,
                        "mac": vf.mac,
                        "mtu": vf.mtu,
                        "up": True,
                        "trust": options.trust,
                        "spoof_check": options.spoof_check,
                        "arp": dict(ARP),
                    }
                    for vf in plan.vfs
                ],
            }
        )
    return {"version": 1, "functions": functions}


def _is_up(netdev: Netdev) -> bool:
    # The carrier of an interface that is down cannot be read.
    return not (netdev.carrier is None and netdev.operstate == "down")


def _as_is(netdev: Netdev | None) -> Document:
    if netdev is None:
        return {}
    return {"mtu": netdev.mtu, "up": _is_up(netdev), "arp": dataclasses.asdict(netdev.arp)}


def before(node: Node, document: Document) -> Document:
    """Return the current state of the functions in a document, itself as a document: `absent` restores it."""
    functions = []
    for entry in document["functions"]:
        function = node.function(entry["pci"])
        if function is None:
            continue
        vfs = [
            {"index": vf.index, "mac": vf.admin_mac if _given(vf.admin_mac) else None}
            | {"trust": vf.trust, "spoof_check": vf.spoof_check}
            | _as_is(vf.netdev)
            for vf in function.vfs
        ]
        functions.append(
            {"slot": entry["slot"], "pci": function.pci, "vf_count": function.numvfs or 0, "eswitch": function.eswitch}
            | _as_is(function.netdev)
            | {"vfs": vfs}
        )
    return {"version": 1, "functions": functions}


def assumed(node: Node, entry: Entry, arp: t.Mapping[str, int]) -> Document:
    """Return the state before of a function for which it is not recorded: what the kernel gives it by itself.

    Ours is never taken for it. It stays up only if someone else configures it: netplan, or whoever gave it an address.
    arp: the sysctls' defaults.
    """
    function = node.function(entry["pci"])
    netdev = function.netdev if function else None
    device = netplan.Device(netdev.name, netdev.mac, function.driver) if function and netdev else netplan.Device()
    stanzas = [stanza for file in node.netplan.files if not file.ours for stanza in file.stanzas]
    used = bool(netdev and netdev.ipv4) or any(netplan.is_meant(stanza, device) for stanza in stanzas)
    return {
        "slot": entry["slot"],
        "pci": entry["pci"],
        "vf_count": 0,
        "mtu": 1500,
        "up": used,
        "arp": dict(arp),
        "vfs": [],
    }


def has_ours(node: Node, entry: Entry) -> bool:
    """Whether a function has VFs with MACs of this fabric already. entry: its planned state."""
    function = node.function(entry["pci"])
    ours = {vf["mac"][:5].lower() for vf in entry["vfs"] if vf.get("mac")}
    return any((vf.admin_mac or "")[:5].lower() in ours for vf in (function.vfs if function else ()))


def gone(node: Node, planned: t.Sequence[PlannedFunction], noted: Document | None = None) -> Document:
    """Return the previous state of functions that were planned once and no longer are, as a document.

    noted: the state before the first change. For a function that is missing there, and has VFs with MACs of this fabric, the
    previous state is unknown: it gets no VFs.
    """
    earlier = (noted or {"functions": []})["functions"]
    wanted = {plan.pci for plan in planned}
    wanted |= {function.pci for plan in planned if (function := node.function(plan.pci, plan.netdev))}
    entries = [entry for entry in earlier if entry["pci"] not in wanted]
    known = wanted | {entry["pci"] for entry in earlier}
    ours = {vf.mac[:5].lower() for plan in planned for vf in plan.vfs}
    for function in node.functions:
        if function.pci not in known and any((vf.admin_mac or "")[:5].lower() in ours for vf in function.vfs):
            name = function.netdev.name if function.netdev else function.pci
            entries.append({"slot": name, "pci": function.pci, "vf_count": 0, "vfs": []})
    return {"version": 1, "functions": entries}


def _given(mac: str | None) -> bool:
    return bool(mac and mac.strip("0:"))


# --- differences ------------------------------------------------------------------------------------------------------


def _interface(subject: str, netdev: Netdev, entry: Entry) -> t.Iterator[Change]:
    wanted_arp: t.Mapping[str, int | None] = entry.get("arp") or {}
    arp: Arp = netdev.arp
    for key, value in wanted_arp.items():
        now = getattr(arp, key)
        if value is not None and now is not None and now != value:
            yield Change(subject, key, now, value)
    if entry.get("mtu") is not None and netdev.mtu != entry["mtu"]:
        yield Change(subject, "mtu", netdev.mtu, entry["mtu"])
    if entry.get("up") is not None and _is_up(netdev) != entry["up"]:
        yield Change(subject, "link", *("up" if up else "down" for up in (_is_up(netdev), entry["up"])))


def recounts(function: Function, entry: Entry) -> bool:
    """Whether all VFs of a function must be removed, because of their number or the eswitch mode."""
    other_mode = function.eswitch is not None and entry.get("eswitch") not in (None, function.eswitch)
    return (function.numvfs or 0) != entry["vf_count"] or (other_mode and entry["vf_count"] > 0)


def rebinds(vf: Vf, entry: Entry) -> bool:
    """Whether a VF on the host gets its MAC (or its HCA a node GUID) only by a rebind of its driver."""
    if vf.netdev is None or not entry.get("mac"):
        return False
    guid = vf.hca.node_guid if vf.hca else None
    # Soft-RoCE makes its own GUID; an HCA without one breaks RDMA-CM.
    return vf.netdev.mac != entry["mac"] or (guid is not None and not guid.strip("0:"))


def _vf(slot: str, vf: Vf, entry: Entry) -> t.Iterator[Change]:
    subject = f"{slot}v{vf.index}"
    if vf.place.state in ("pod", "stranded"):
        return  # a VF in a live pod is judged by its function's settings: see refusals()
    if vf.netdev is None:
        if vf.driver is None:
            yield Change(subject, "driver", None, "bound")
    elif rebinds(vf, entry) and vf.netdev.mac == entry["mac"]:
        yield Change(subject, "node GUID", vf.hca.node_guid if vf.hca else None, "of its MAC")
    for now in (vf.admin_mac, vf.netdev.mac if vf.netdev else None):
        if now is not None and entry.get("mac") and now != entry["mac"]:
            yield Change(subject, "mac", now, entry["mac"])
            break
    for key in ("trust", "spoof_check"):
        if entry.get(key) is not None and getattr(vf, key) not in (None, entry[key]):
            yield Change(subject, key.replace("_", " "), getattr(vf, key), entry[key])
    if vf.netdev is not None:
        yield from _interface(subject, vf.netdev, entry)


def compare(node: Node, document: Document) -> list[Change]:
    """Return how the node's functions and VFs differ from a document. A missing function is no difference."""
    changes: list[Change] = []
    for entry in document["functions"]:
        function, slot = node.function(entry["pci"]), str(entry["slot"])
        if function is None:
            continue
        if function.eswitch is not None and entry.get("eswitch") not in (None, function.eswitch):
            changes.append(Change(slot, "eswitch", function.eswitch, entry["eswitch"]))
        again = recounts(function, entry)
        if (function.numvfs or 0) != entry["vf_count"]:
            changes.append(Change(slot, "VFs", function.numvfs or 0, entry["vf_count"]))
        if function.netdev is not None:
            changes += _interface(slot, function.netdev, entry)
        there = {vf.index: vf for vf in function.vfs}
        for vf in entry["vfs"]:
            if again and vf.get("mac"):
                changes.append(Change(f"{slot}v{vf['index']}", "mac", None, vf["mac"]))
            elif not again and vf["index"] in there:
                changes += _vf(slot, there[vf["index"]], vf)
    return changes


def stranded(node: Node, planned: t.Sequence[PlannedFunction]) -> list[tuple[str, Vf]]:
    """Return the VFs of planned functions whose interface is in a namespace without processes, by slot and index."""
    found = []
    for plan in planned:
        function = node.function(plan.pci, plan.netdev)
        vfs = function.vfs if function else ()
        found += [(f"{plan.slot}v{vf.index}", vf) for vf in vfs if vf.place.state == "stranded"]
    return found


def drift(
    node: Node, planned: t.Sequence[PlannedFunction], options: Options = Options(), program: bytes | None = None
) -> list[Change]:
    """Return everything that `sriov_vf` would change on a node, files and units included. Empty: the node is as planned.

    program: the restorer's archive, if the caller has it.
    """
    document = desired(node, planned, options)
    changes = []
    if options.reset_stranded:
        changes += [Change(name, "place", f"dead {vf.place.netns}", "host") for name, vf in stranded(node, planned)]
    changes += compare(node, document)
    files = persist.managed_files(document, persist.program() if program is None else program)
    return changes + persist.file_changes(node, files)


# --- what prevents it -------------------------------------------------------------------------------------------------

_FIRMWARE = (
    "Enable SR-IOV in the firmware, with mlxconfig (or mstconfig): "
    "`mlxconfig -d {pci} set SRIOV_EN=1 NUM_OF_VFS={count}`; then power the node off (a reboot is not enough) and on."
)


def _using(slot: str, vf: Vf) -> Finding | None:
    """Return why a VF must not be removed, if there is a reason."""
    name = f"{slot}v{vf.index} ({vf.pci})"
    if vf.place.state == "pod":
        where = vf.place.netns or "another network namespace"
        message = f"it is in use in a live pod: its interface is in {where}, with {vf.place.pids} processes."
        return Finding("sriov.in-use", "error", name, message, "Stop the pod that uses it, then run again.")
    if vf.users:
        message = f"it is in use: {', '.join(vf.users)} {'have' if len(vf.users) > 1 else 'has'} queue pairs on it."
        return Finding("sriov.in-use", "error", name, message, "Stop these processes, then run again.")
    if vf.open_by:
        device = f"its RDMA device{f' {vf.hca.name}' if vf.hca else ''}"
        message = f"it is in use: {', '.join(vf.open_by)} {'have' if len(vf.open_by) > 1 else 'has'} {device} open."
        remedy = "Stop these processes (the kernel would wait for them forever), then run again."
        return Finding("sriov.in-use", "error", name, message, remedy)
    return None


def _blocked(slot: str, function: Function, entry: Entry) -> t.Iterator[Finding]:
    wanted = {vf["index"]: vf for vf in entry["vfs"]}
    again = recounts(function, entry)
    for vf in function.vfs:
        want = wanted.get(vf.index, {})
        if not again and vf.place.state == "unbound" and vf.driver is not None:
            yield Finding(
                "sriov.no-netdev",
                "error",
                f"{slot}v{vf.index} ({vf.pci})",
                f"it has the driver {vf.driver} and no network interface, here or in any namespace.",
                "Unbind that driver (`driverctl unset-override`, or the virtual machine that has the VF), then run again.",
            )
            continue
        if vf.place.state == "pod":
            moved = bool(want.get("mac")) and vf.admin_mac is not None and vf.admin_mac != want["mac"]
        else:
            moved = rebinds(vf, want)
        found = _using(slot, vf) if again or moved else None
        if found:
            what = f"{function.numvfs or 0} VFs cannot be changed to {entry['vf_count']}"
            if not again or function.numvfs == entry["vf_count"]:
                what = "its eswitch mode cannot be changed" if again else f"its MAC cannot be changed to {want['mac']}"
            yield dataclasses.replace(found, message=f"{what}: {found.message}")


def _missing(slot: str, netdev: str, pci: str | None) -> Finding:
    return Finding(
        "sriov.missing",
        "error",
        f"{slot} ({pci or netdev})",
        "this function is missing. The ConnectX-7 shows a port's functions only with its cable plugged in.",
        "Plug the cable in (see `lspci -D -d 15b3:`), or leave the port out of dgxspark_fabric.ports, or name the function "
        "in the host's dgxspark_fabric_functions.",
    )


def _capacity(slot: str, function: Function, count: int) -> Finding | None:
    subject = f"{slot} ({function.pci})"
    if count and not function.totalvfs:
        has = "sriov_totalvfs is 0" if function.totalvfs == 0 else "it has no sriov_totalvfs"
        remedy = _FIRMWARE.format(pci=function.pci, count=count)
        return Finding("sriov.disabled", "error", subject, f"{has}: the function offers no VFs.", remedy)
    if count > (function.totalvfs or 0):
        message = f"{count} VFs are planned, but it offers {function.totalvfs} (sriov_totalvfs)."
        remedy = f"Set dgxspark_fabric.vf_count to {function.totalvfs} or less, or raise it. " + _FIRMWARE.format(
            pci=function.pci, count=count
        )
        return Finding("sriov.too-many", "error", subject, message, remedy)
    if count and function.netdev is None:
        message = f"it has no network interface (driver {function.driver or 'none'})."
        return Finding("sriov.no-netdev", "error", subject, message, "See `dmesg` for what its driver says.")
    return None


def refusals(node: Node, planned: t.Sequence[PlannedFunction], options: Options = Options()) -> list[Finding]:
    """Return why the plan cannot be applied now. A finding of severity error means that nothing may be touched."""
    findings = record.finding(node.record_fault)
    if node.rdma_netns == "exclusive" and planned:
        findings.append(Finding("rdma.exclusive", "error", "RDMA", EXCLUSIVE, SHARE))
    entries = {entry["pci"]: entry for entry in desired(node, planned, options)["functions"]}
    for plan in planned:
        function = node.function(plan.pci, plan.netdev)
        if function is None:
            findings.append(_missing(plan.slot, plan.netdev, plan.pci))
            continue
        capacity = _capacity(plan.slot, function, len(plan.vfs))
        findings += [capacity] if capacity else _blocked(plan.slot, function, entries[function.pci])
    for name, vf in stranded(node, planned):
        if not options.reset_stranded or vf.place.netns is None:
            findings.append(
                Finding(
                    "sriov.stranded",
                    "error",
                    f"{name} ({vf.pci})",
                    f"its interface was left in a dead network namespace ({vf.place.netns or 'without a name'}).",
                    "Set sriov_roce_reset_stranded: true to recover it (live pods are never touched)."
                    if vf.place.netns
                    else "It cannot be entered: reboot the node.",
                )
            )
    return findings


def refuse(findings: t.Sequence[Finding]) -> None:
    """Raise CollectionError if anything prevents the change."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise CollectionError(" ".join(str(finding) for finding in errors), findings=errors)


def removal_refusals(node: Node, document: Document) -> list[Finding]:
    """Return what prevents the removal of the VFs of a document's functions."""
    findings = []
    for entry in document["functions"]:
        function = node.function(entry["pci"])
        findings += [f for vf in (function.vfs if function else ()) if (f := _using(str(entry["slot"]), vf))]
    return findings


def left(change: Change) -> Finding:
    """Return the finding for a difference that remains after the change."""
    message = f"{change.what} is {change.before!r} and not {change.after!r}, although it was set without an error."
    return Finding(
        "sriov.left", "error", change.subject, message, "Something else on the node changes it: see its journal."
    )
