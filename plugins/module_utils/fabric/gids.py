# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GID check: is each planned VF's own IPv4 in its HCA's GID table as RoCE v2, and if not, why not."""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    ROCE_V2,
    Finding,
    Function,
    Gid,
    Hca,
    Netdev,
    Node,
    PlannedFunction,
    PlannedVf,
    Vf,
)

_DOWN = frozenset({"down", "lowerlayerdown", "notpresent", "dormant", "testing"})
# Waiting does not cure these: neither a link nor an address makes a VF appear.
HOPELESS = frozenset({"gid.function-missing", "gid.vf-missing", "gid.vf-stranded", "gid.vf-unbound"})


@dataclass(frozen=True, slots=True)
class GidEntry:
    """The GID entry for a VF's traffic: RoCE v2, its own IPv4, its own netdev."""

    slot: str
    vf: int
    hca: str
    port: int
    netdev: str
    address: str
    index: int
    place: str


@dataclass(frozen=True, slots=True)
class CommonIndex:
    """Whether one GID index fits every HCA of every rank, which one, and a sentence that says so or names those that differ."""

    fits: bool
    index: int | None
    message: str


def judge(node: Node, planned: t.Sequence[PlannedFunction]) -> tuple[list[GidEntry], list[Finding]]:
    """Check every planned VF of a node: an entry for each correct one, a finding with a cause for each other.

    A VF in a live pod is judged by its state in the pod's namespace.
    """
    entries: list[GidEntry] = []
    findings: list[Finding] = []
    for plan in planned:
        function = node.function(plan.pci, plan.netdev)
        if function is None:
            where = " and ".join(filter(None, (plan.netdev, plan.pci and f"PCI {plan.pci}")))
            findings.append(
                _finding(
                    "function-missing",
                    plan.slot,
                    f"the node has no fabric function {where}.",
                    "A ConnectX-7 port vanishes without a cable: check the cable, and the names in "
                    "dgxspark_fabric_functions where this node differs.",
                )
            )
            continue
        for vf in plan.vfs:
            result = _judge_vf(function, plan, vf)
            if isinstance(result, Finding):
                findings.append(result)
            else:
                entries.append(result)
    return entries, findings


def common_index(per_host: t.Mapping[str, t.Sequence[GidEntry]]) -> CommonIndex:
    """Say whether ONE GID index fits all HCAs of all hosts: NCCL_IB_GID_INDEX is one number for all of them."""
    counts = Counter(entry.index for entries in per_host.values() for entry in entries)
    without = [host for host, entries in per_host.items() if not entries]
    if not counts or without:
        who = ", ".join(without) or "no host"
        return CommonIndex(
            False, None, f"No common GID index: {who} {'has' if without else 'gave'} no valid GID entry."
        )
    # The most common index; on a tie the smallest, so that the answer does not depend on the order of hosts.
    usual = min(counts, key=lambda index: (-counts[index], index))
    differing = [
        f"{host} {entry.hca} has {entry.index}"
        for host, entries in per_host.items()
        for entry in entries
        if entry.index != usual
    ]
    if not differing:
        return CommonIndex(True, usual, f"GID index {usual} fits all {sum(counts.values())} HCAs.")
    shown = ", ".join(differing[:8]) + (f" and {len(differing) - 8} more" if len(differing) > 8 else "")
    return CommonIndex(False, None, f"No common GID index: most HCAs have {usual}, but {shown}.")


def _judge_vf(function: Function, plan: PlannedFunction, planned: PlannedVf) -> GidEntry | Finding:
    name = f"{plan.slot}v{planned.index}"
    vf = next((vf for vf in function.vfs if vf.index == planned.index), None)
    if vf is None:
        return _finding(
            "vf-missing",
            name,
            f"VF {planned.index} of {plan.netdev} does not exist; the function has {len(function.vfs)}.",
            "The role sriov_roce creates it.",
        )
    at = f"{name} ({vf.netdev.name if vf.netdev else vf.pci})"
    if vf.place.state == "stranded":
        return _finding(
            "vf-stranded",
            at,
            f"the VF is stranded in the network namespace {vf.place.netns}, which has no processes.",
            "Free it with sriov_roce_reset_stranded: true.",
        )
    if vf.netdev is None:
        why = f"is bound to {vf.driver}, which created no netdev" if vf.driver else "has no driver"
        return _finding("vf-unbound", at, f"the VF {vf.pci} {why}.", "The role sriov_roce binds it again.")
    if vf.place.state == "pod":
        at += f", in the pod's namespace {vf.place.netns}"
    if vf.hca is None:
        return _finding(
            "hca-missing",
            at,
            "the netdev has no RDMA device (HCA).",
            "Check that the VF's RDMA driver is loaded (`rdma link` shows its devices).",
        )
    return _judge_link(vf, vf.netdev, vf.hca, at) or _judge_table(vf, vf.netdev, vf.hca, plan, planned, at)


def _judge_link(vf: Vf, netdev: Netdev, hca: Hca, at: str) -> Finding | None:
    said = ""
    if netdev.carrier is False:
        said = "no carrier"
    elif netdev.operstate in _DOWN:
        said = f"the netdev is {netdev.operstate}"
    elif hca.ports and all(port.state not in (None, "ACTIVE") for port in hca.ports):
        said = f"the port of {hca.name} is {hca.ports[0].state}"
    if not said:
        return None
    remedy = "Check the cable and the switch port." if netdev.carrier is False else "The role netplan_vf sets it up."
    without = "" if netdev.ipv4 else f" It has no IPv4 address either: {_contents(hca)}."
    return _finding("link-down", at, f"the link is down ({said}).{without}", remedy)


def _judge_table(
    vf: Vf, netdev: Netdev, hca: Hca, plan: PlannedFunction, planned: PlannedVf, at: str
) -> GidEntry | Finding:
    has = ", ".join(netdev.ipv4)
    if not netdev.ipv4:
        return _finding(
            "no-ipv4",
            at,
            f"the netdev has no IPv4 address; {_contents(hca)}.",
            f"The role netplan_vf gives it {planned.address}/{planned.prefix}.",
        )
    if planned.address not in {address.split("/")[0] for address in netdev.ipv4}:
        return _finding(
            "wrong-ipv4",
            at,
            f"the netdev has {has}, but the plan says {planned.address}/{planned.prefix}.",
            "The role netplan_vf sets it; look for another network configuration of this interface.",
        )
    own = [(port.number, gid) for port in hca.ports for gid in port.gids if gid.ipv4 == planned.address]
    second = [(port, gid) for port, gid in own if gid.type == ROCE_V2]
    right = [(port, gid) for port, gid in second if gid.netdev == netdev.name]
    if right:
        port, gid = right[0]
        return GidEntry(plan.slot, vf.index, hca.name, port, netdev.name, planned.address, gid.index, vf.place.state)
    if second:
        port, gid = second[0]
        return _finding(
            "wrong-netdev",
            at,
            f"entry {gid.index} of {hca.name} has {planned.address}, but for the netdev {gid.netdev or '(none)'}.",
            "Remove the address from that other interface.",
        )
    if own:
        return _finding(
            "roce-v1-only",
            at,
            f"{planned.address} is in {hca.name}'s GID table as RoCE v1 only (entry {own[0][1].index}).",
            "The device offers no RoCE v2 there: update its firmware and driver.",
        )
    return _finding(
        "not-in-table",
        at,
        f"the netdev has {has}, but {hca.name}'s GID table was not updated: {_contents(hca)}.",
        "Set the link down and up again; if that does not help, rebind the VF's driver.",
    )


def _contents(hca: Hca) -> str:
    gids: list[Gid] = [gid for port in hca.ports for gid in port.gids]
    if not gids:
        return f"the GID table of {hca.name} is empty"
    if all(gid.link_local for gid in gids):
        return f"the GID table of {hca.name} has only link-local entries (fe80::), which reach no other node"
    addresses = ", ".join(dict.fromkeys(gid.ipv4 or gid.gid for gid in gids if not gid.link_local))
    return f"the GID table of {hca.name} has {addresses}"


def _finding(cause: str, subject: str, message: str, remedy: str) -> Finding:
    return Finding(f"gid.{cause}", "error", subject, message, remedy)
