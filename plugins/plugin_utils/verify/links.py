# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps decided by the nodes' facts: link and GID."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import routes
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.vfs import EXCLUSIVE, SHARE
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    Finding,
    Function,
    Netdev,
    Node,
    PlannedFunction,
    PlannedHost,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.values import End, Evidence, Place, Result

_MAKE = "Run dgxspark.cluster.site --tags fabric: the role {role} sets it."
_SUBJECT = re.compile(r"^(?P<slot>p\d+f\d+)(?:v(?P<vf>\d+))?")


def link(evidence: Evidence) -> list[Result]:
    """Judge each function (carrier, state, speed, MTU, number of VFs) and each VF (state, MTU, MAC) by the facts."""
    results: list[Result] = []
    owners = {vf.address: End(n, f, vf) for n, host in evidence.plan.items() for f in host.functions for vf in f.vfs}
    for name, host in evidence.plan.items():
        node = evidence.node(name)
        results += _addresses_of_others(name, host, node, owners) if node else []
        if node and node.rdma_netns == "exclusive" and host.functions:
            results.append(_failed(Place(name), "rdma.exclusive", f"RDMA: {EXCLUSIVE}", SHARE))
        for planned in host.functions:
            place = Place(name, planned.slot)
            absent = evidence.not_here(name)
            if absent:
                results.append(_not_run(place, absent))
                continue
            function = evidence.function(name, planned)
            found = list(_function(evidence, place, planned, function))
            results += found or [_passed(place, _shown(function.netdev if function else None))]
            for vf in planned.vfs if function else ():
                end = End(name, planned, vf)
                problems = list(_vf(evidence, end))
                seen = evidence.vf(end)
                results += problems or [_passed(end.place, _shown(seen.netdev if seen else None))]
    fault = evidence.more.get("plan_fault")
    if fault and not any(result.cause == "function.missing" for result in results):
        results.append(Result("plan", "fail", (), str(fault), "plan.refused", None, "Correct it, then verify again."))
    return results


def _addresses_of_others(name: str, host: PlannedHost, node: Node, owners: t.Mapping[str, End]) -> t.Iterator[Result]:
    """Find addresses that the plan gives to another host. A node with one does not even answer that host."""
    netdevs = [netdev for f in node.functions for netdev in (f.netdev, *(vf.netdev for vf in f.vfs)) if netdev]
    for netdev in (*netdevs, *node.other):
        for address in netdev.ipv4:
            owner = owners.get(address.partition("/")[0])
            if owner is None or owner.host == name:
                continue
            beside = (
                Place(name, f.slot, vf.index) for f in host.functions for vf in f.vfs if vf.subnet == owner.vf.subnet
            )
            message = f"{netdev.name} has {address}, which the plan gives to {owner}."
            remedy = f"`ip address del {address} dev {netdev.name}` on {name}, and take it out of what sets it there."
            yield _failed(next(beside, Place(name)), "link.address", message, remedy)


def _shown(netdev: Netdev | None) -> str:
    if netdev is None:
        return ""
    speed = f", {_gbps(netdev.speed_mbps)}" if netdev.speed_mbps else ""
    return f"{netdev.name} {netdev.operstate or ''}, MTU {netdev.mtu}{speed}"


def _gbps(mbps: float) -> str:
    return f"{mbps / 1000:g} Gb/s"


def _passed(place: Place, message: str, figures: dict[str, t.Any] | None = None) -> Result:
    return Result(str(place), "pass", (place,), message, figures=figures or {})


def _not_run(place: Place, reason: tuple[str, bool]) -> Result:
    return Result(str(place), "not run", (place,), f"{reason[0]}.", required=reason[1])


def _failed(place: Place, cause: str, message: str, remedy: str) -> Result:
    return Result(str(place), "fail", (place,), message, cause, place, remedy)


def _down(place: Place, netdev: Netdev, remedy: str) -> t.Iterator[Result]:
    if netdev.carrier is False and netdev.operstate != "down":
        yield _failed(place, "link.down", f"the link of {netdev.name} is down: no carrier.", remedy)
    elif netdev.operstate not in ("up", "unknown", None):
        why = ", no carrier" if netdev.carrier is False else ""
        yield _failed(place, "link.down", f"the link of {netdev.name} is down (state {netdev.operstate}{why}).", remedy)


def _function(
    evidence: Evidence, place: Place, planned: PlannedFunction, function: Function | None
) -> t.Iterator[Result]:
    if function is None:
        name = f"{planned.netdev}{f', {planned.pci}' if planned.pci else ''}"
        yield _failed(
            place,
            "function.missing",
            f"the node has no such function ({name}).",
            "A port's functions vanish without a cable: plug it in. Or correct the names in the host's "
            "dgxspark_fabric_functions.",
        )
        return
    netdev = function.netdev
    if netdev is None:
        driver = function.driver or "none"
        yield _failed(place, "function.no-netdev", f"{function.pci} has no netdev (driver: {driver}).", "See dmesg.")
        return
    down = list(_down(place, netdev, "Check the cable, the switch port, and `ip link set " + netdev.name + " up`."))
    yield from down
    least = evidence.thresholds["link"]["min_speed_mbps"]
    if netdev.speed_mbps is None and not down:
        yield Result(
            str(place),
            "not run",
            (place,),
            f"{netdev.name} reports no link speed; at least {_gbps(least)} is required.",
        )
    elif netdev.speed_mbps is not None and netdev.speed_mbps < least:
        message = f"{netdev.name} runs at {_gbps(netdev.speed_mbps)}; at least {_gbps(least)} is required."
        yield _failed(place, "link.speed", message, "Check the cable's type and the switch port's speed and FEC.")
    if netdev.mtu is not None and netdev.mtu < planned.mtu:
        message = f"the MTU of {netdev.name} is {netdev.mtu}; the plan says {planned.mtu}."
        yield _failed(place, "link.mtu", message, _MAKE.format(role="netplan_vf"))
    if (function.numvfs or 0) < len(planned.vfs):
        message = f"{netdev.name} has {function.numvfs or 0} VFs; the plan says {len(planned.vfs)}."
        yield _failed(place, "vf.count", message, _MAKE.format(role="sriov_roce"))


def _vf(evidence: Evidence, end: End) -> t.Iterator[Result]:
    place = end.place
    vf = evidence.vf(end)
    if vf is None:
        yield _failed(place, "vf.missing", "there is no such VF.", _MAKE.format(role="sriov_roce"))
        return
    if vf.place.state == "pod":
        yield _not_run(place, evidence.not_on_host(end) or ("it is in a live pod", False))
        return
    if vf.place.state == "stranded":
        message = f"the VF is stranded in the network namespace {vf.place.netns}, which has no processes."
        yield _failed(place, "vf.stranded", message, "Free it with sriov_roce_reset_stranded: true.")
        return
    netdev = vf.netdev
    if netdev is None:
        message = f"the VF {vf.pci} has no netdev (driver: {vf.driver or 'none'})."
        yield _failed(place, "vf.unbound", message, _MAKE.format(role="sriov_roce"))
        return
    yield from _down(
        place, netdev, "Its link follows that of its function; otherwise: " + _MAKE.format(role="netplan_vf")
    )
    if netdev.mtu is not None and netdev.mtu < end.vf.mtu:
        message = f"the MTU of {netdev.name} is {netdev.mtu}; the plan says {end.vf.mtu}."
        yield _failed(place, "link.mtu", message, _MAKE.format(role="netplan_vf"))
    for change in routes.lost(netdev, [f"{end.vf.address}/{end.vf.prefix}"]):
        message = (
            f"{netdev.name} has its address, but no route to {change.after.split()[0]}: nothing is sent through it."
        )
        yield _failed(place, "link.route", message, _MAKE.format(role="netplan_vf"))
    if netdev.mac and netdev.mac.lower() != end.vf.mac.lower():
        message = f"the MAC of {netdev.name} is {netdev.mac}; the plan says {end.vf.mac}."
        yield _failed(place, "vf.mac", message, _MAKE.format(role="sriov_roce"))


def gid(evidence: Evidence) -> list[Result]:
    """Judge each VF's GID table, including VFs in a live pod whose facts could be read."""
    results = []
    for name, host in evidence.plan.items():
        absent = evidence.not_here(name)
        if absent:
            results += [_not_run(Place(name, f.slot, vf.index), absent) for f in host.functions for vf in f.vfs]
            continue
        entries, findings = evidence.gids[name]
        for entry in entries:
            message = f"{entry.hca} entry {entry.index}: {entry.address}, RoCE v2"
            place = Place(name, entry.slot, entry.vf)
            results.append(_passed(place, message, {"hca": entry.hca, "index": entry.index, "place": entry.place}))
        results += [_found(name, finding) for finding in findings]
    return results


def _found(host: str, finding: Finding) -> Result:
    match = _SUBJECT.match(finding.subject)
    slot, vf = (match["slot"], match["vf"]) if match else (None, None)
    place = Place(host, slot, int(vf) if vf is not None else None)
    return _failed(place, finding.id, finding.message, finding.remedy)
