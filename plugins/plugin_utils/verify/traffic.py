# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps decided by test traffic: MTU, ARP and RDMA."""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Netdev, Node
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.topologies import TOPOLOGIES
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify import outliers
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.schedule import (
    KINDS,
    directions,
    least_together,
    netdev_of,
    rdma_reason,
    test_id,
    together,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.values import (
    End,
    Evidence,
    Path,
    Place,
    Plain,
    Result,
)


def _directed(evidence: Evidence, kind: str, judge: t.Callable[[Evidence, End, End, Plain], Result]) -> list[Result]:
    """Judge the probes' answers of one kind, in both directions of every path."""
    results = []
    for path in evidence.paths:
        blocked = evidence.blocked(path.ends)
        if blocked:
            results.append(_not_run(str(path), path, blocked))
            continue
        for end, peer in (path.ends, path.ends[::-1]):
            answer = evidence.answers.get((kind, end.host, netdev_of(evidence, end), peer.vf.address))
            if answer is None:
                why = evidence.hosts[end.host].probe_error or "no answer of the probe"
                results.append(_not_run(f"{end} > {peer}", path, (f"the probe did not run on {end.host}: {why}", True)))
            else:
                results.append(judge(evidence, end, peer, answer))
    return results


def _not_run(subject: str, path: Path, reason: tuple[str, bool]) -> Result:
    places = (path.a.place, path.b.place)
    return Result(subject, "not run", places, f"{reason[0].rstrip('.')}.", required=reason[1])


def _failed(
    subject: str, ends: tuple[End, End], cause: str, message: str, remedy: str, blame: Place | None = None
) -> Result:
    return Result(subject, "fail", (ends[0].place, ends[1].place), message, cause, blame, remedy)


# --- MTU ------------------------------------------------------------------------------------------------------------


def mtu(evidence: Evidence) -> list[Result]:
    """Judge the pings: a full-size packet that must not be fragmented gets through, in both directions."""
    return _directed(evidence, "ping", _mtu)


_MAKE = "Run dgxspark.cluster.site --tags fabric."
# The kernel makes the route of each address when a link comes up. networkd (257) leaves an address that is as it should be, and its route gone.
_ROUTES = "`ip link set {netdev} down; ip link set {netdev} up`"
_SEND_ERRORS = {
    "no address": ("mtu.no-address", "it does not have its address {address}", _MAKE),
    "no device": ("mtu.no-device", "its netdev is gone", _MAKE),
    # The interface has its address and its MTU, so that site.yml has nothing to do.
    "no route": (
        "mtu.no-route",
        "it has no route to {peer_address}",
        "On {host}, `ip rule` and `ip route get {peer_address}` show what leads elsewhere. A route that is merely gone comes back with "
        f"{_ROUTES}.",
    ),
    "down": ("mtu.down", "its link is down", _MAKE),
    "not permitted": (
        "mtu.refused",
        "its own firewall refuses to send",
        "On {host}, look at `nft list ruleset` (ufw, iptables), and allow it between the fabric's addresses.",
    ),
}


def _mtu(evidence: Evidence, end: End, peer: End, answer: Plain) -> Result:
    subject = f"{end} > {peer}"
    size = min(end.vf.mtu, peer.vf.mtu)
    small, large = answer["small"], answer["large"]
    if small == "ok" and large == "ok":
        return Result(
            subject, "pass", (end.place, peer.place), f"{size} bytes", figures={"mtu": size, "rtt_ms": answer["rtt_ms"]}
        )
    if small != "ok":
        if small in _SEND_ERRORS:
            cause, *texts = _SEND_ERRORS[small]
            known = {"address": end.vf.address, "peer_address": peer.vf.address, "host": end.host}
            why, remedy = (text.format(netdev=netdev_of(evidence, end), **known) for text in texts)
            message = f"{end} cannot send to {peer}: {why}."
            return _failed(subject, (end, peer), cause, message, remedy, end.place)
        message = f"{end} cannot reach {peer} ({peer.vf.address}), not even with a small packet ({small})."
        heard = evidence.answers.get(("arp", end.host, netdev_of(evidence, end), peer.vf.address)) or {}
        remedy = f"See the link and ARP steps; then {_between(evidence)}."
        if [mac.lower() for mac in heard.get("macs", ())] == [peer.vf.mac.lower()]:
            message = f"{message.rstrip('.')}, although it answers ARP."
            netdev = netdev_of(evidence, peer)
            remedy = (
                f"A firewall drops ICMP echo there, or on the way: on {peer.host} and {end.host} look at `nft list ruleset` (ufw, "
                "iptables), and allow it between the fabric's addresses. Or the answer takes another way: there, `ip route get "
                f"{end.vf.address}` must name {netdev}; {_ROUTES.format(netdev=netdev)} brings its route back."
            )
        return _failed(subject, (end, peer), "mtu.unreachable", message, remedy)
    for side in (end, peer):
        narrow = _narrow(evidence, side, size)
        if narrow:
            message = f"a packet of {size} bytes does not pass from {end} to {peer}: {narrow}."
            remedy = "Run dgxspark.cluster.site --tags fabric: the role netplan_vf sets the MTU."
            return _failed(subject, (end, peer), "mtu.interface", message, remedy, side.place)
    if large == "too large":
        message = f"{end} does not send a packet of {size} bytes: it is larger than the interface's or the route's MTU."
        remedy = f"Look at `ip route get {peer.vf.address}` and at the interface's MTU."
        return _failed(subject, (end, peer), "mtu.own", message, remedy, end.place)
    message = (
        f"small packets pass from {end} to {peer}, one of {size} bytes does not ({large}), and both interfaces have the "
        "planned MTU."
    )
    remedy = f"Something between them drops it: set the MTU (L2 MTU) of the switch ports to at least {size + 26}."
    return _failed(subject, (end, peer), "mtu.path", message, remedy)


def _narrow(evidence: Evidence, end: End, size: int) -> str | None:
    """Return which interface of an end has an MTU below `size` according to its facts."""
    vf, function = evidence.vf(end), evidence.function(end.host, end.function)
    for netdev in (vf and vf.netdev, function and function.netdev):
        if netdev and netdev.mtu is not None and netdev.mtu < size:
            return f"the MTU of {netdev.name} on {end.host} is {netdev.mtu}"
    return None


# --- ARP ------------------------------------------------------------------------------------------------------------


def arp(evidence: Evidence) -> list[Result]:
    """Judge who answers ARP for each planned address: only the planned MAC may."""
    owners = _owners(evidence)
    return _directed(evidence, "arp", lambda e, end, peer, answer: _arp(e, end, peer, answer, owners))


Owner = tuple[Place, str]  # with the name of its netdev


def _owners(evidence: Evidence) -> dict[str, Owner]:
    """Return the owner of each MAC, by the nodes' facts first, then by the plan."""
    found: dict[str, Owner] = {}
    for name, host in evidence.plan.items():
        for planned in host.functions:
            for vf in planned.vfs:
                found[vf.mac.lower()] = (Place(name, planned.slot, vf.index), vf.netdev or "")
    for name, seen in evidence.hosts.items():
        if seen.node is None:
            continue
        for netdev in _netdevs(seen.node):  # also of functions that are not planned
            if netdev.mac:
                found.setdefault(netdev.mac.lower(), (Place(name), netdev.name))
        for planned in evidence.plan[name].functions:
            function = evidence.function(name, planned)
            if function is None:
                continue
            if function.netdev and function.netdev.mac:
                found[function.netdev.mac.lower()] = (Place(name, planned.slot), function.netdev.name)
            for vf_seen in function.vfs:
                if vf_seen.netdev and vf_seen.netdev.mac:
                    place = Place(name, planned.slot, vf_seen.index)
                    found[vf_seen.netdev.mac.lower()] = (place, vf_seen.netdev.name)
    return found


def _between(evidence: Evidence) -> str:
    """Name what to look at between two ports that have a link and do not hear each other."""
    if TOPOLOGIES[evidence.topology].cables:
        return (
            f"the cables: one that leads to another port or host than the topology `{evidence.topology}` says is as silent as none. "
            "dgxspark.cluster.discover shows which ports hear each other"
        )
    return "the switch's VLANs"


def _arp(evidence: Evidence, end: End, peer: End, answer: Plain, owners: t.Mapping[str, Owner]) -> Result:
    subject = f"{end} > {peer}"
    ends = (end, peer)
    address = peer.vf.address
    macs = [mac.lower() for mac in answer["macs"]]
    if macs == [peer.vf.mac.lower()]:
        return Result(subject, "pass", (end.place, peer.place), f"{address} is at {macs[0]}", figures={"macs": macs})
    if not macs and answer.get("error"):
        message = f"{end} cannot send an ARP request for {address}: {answer['error']}."
        return _failed(subject, ends, "arp.not-sent", message, "See the link step.", end.place)
    if not macs:
        message = f"nothing answers ARP from {end} for {address}, which is planned for {peer}."
        return _failed(subject, ends, "arp.silent", message, f"See the link and GID steps; then {_between(evidence)}.")
    wrong = [mac for mac in macs if mac != peer.vf.mac.lower()]
    told = [_answerer(evidence, peer, mac, owners.get(mac)) for mac in wrong]
    cause, blame, _text, remedy = told[0]
    also = "" if len(wrong) == len(macs) else "in addition, "
    message = f"{address} is {peer}'s ({peer.vf.mac}); {also}{'; '.join(text for _c, _b, text, _r in told)}."
    result = _failed(subject, ends, cause, message, remedy, blame)
    result.figures["macs"] = macs
    return result


def _answerer(evidence: Evidence, peer: End, mac: str, owner: Owner | None) -> tuple[str, Place | None, str, str]:
    """Return who answered in place of `peer` or besides it: cause, place, message, remedy."""
    if owner is None:
        remedy = "Look for a foreign device with this address on the segment, or a node that sends another MAC than it reported."
        return "arp.stranger", peer.place, f"{mac} answers, which belongs to no planned host", remedy
    place, netdev = owner
    if place == peer.place:
        return (
            "arp.mac",
            place,
            f"it answers with {mac}",
            "Run dgxspark.cluster.site --tags fabric: sriov_roce sets the planned MAC.",
        )
    if place.host != peer.host:
        text = f"{place} ({netdev or mac}) answers for it"
        return "arp.duplicate", place, text, f"Remove the address {peer.vf.address} from {place.host}."
    what = "the twin" if place.vf is not None and place.slot != peer.function.slot else "another interface of the node"
    ignore = _arp_ignore(evidence, place, netdev)
    why = "" if ignore is None else f": arp_ignore is {ignore} on {netdev}"
    remedy = "Set arp_ignore=1 and arp_announce=2 on it: dgxspark.cluster.site --tags fabric does this, with the role sriov_roce."
    if place.slot is None:  # the role leaves alone what is not in the plan
        remedy = (
            f"{netdev} is not in the plan, so dgxspark.cluster.site leaves it alone: set net.ipv4.conf.{netdev}.arp_ignore=1 and "
            f"arp_announce=2 in a file of /etc/sysctl.d on {place.host}, or disconnect that interface from this network."
        )
    return "arp.twin", place, f"{place} ({netdev or mac}), {what}, answers for it{why}", remedy


def _arp_ignore(evidence: Evidence, place: Place, netdev: str) -> int | None:
    node = evidence.node(place.host)
    return next((found.arp.arp_ignore for found in (_netdevs(node) if node else ()) if found.name == netdev), None)


def _netdevs(node: Node) -> list[Netdev]:
    """Return the node's interfaces, planned or not."""
    functions = [netdev for f in node.functions for netdev in (f.netdev, *(vf.netdev for vf in f.vfs))]
    return [netdev for netdev in (*functions, *node.other) if netdev]


# --- RDMA -----------------------------------------------------------------------------------------------------------

_NAMES = {"write": "RDMA write", "pingpong": "RDMA ping-pong"}
# What the programs print when they fail, and what it means.
_SAID: tuple[tuple[str, str, str], ...] = (
    (
        r"another verify is testing",
        "rdma.busy",
        "Wait until that one has ended (one that was cut off ends within a minute), then run again.",
    ),
    (
        r"(?i)address already in use",
        "rdma.port",
        "Another program listens on that TCP port: `ss -ltnp` on the node names it. Stop it, or set another rdma.tcp_port in a "
        "threshold file of your own.",
    ),
    (
        r"(?i)modify .*QP.* to RTR|Network is unreachable|ENETUNREACH",
        "rdma.no-route",
        "The queue pair has no route to the peer's GID: see the GID step, and the peer's address and route.",
    ),
    (
        r"(?i)failed status 12|retry.*exceeded|RETRY_EXC",
        "rdma.lost",
        "Packets are being lost: compare the MTU of both ends and of the switch ports; check the ARP step for a twin that answers.",
    ),
    (
        r"(?i)failed status 13|RNR",
        "rdma.not-ready",
        "The receiver had no buffers posted in time. Run it again; the node may be overloaded.",
    ),
    (
        r"(?i)unable to find the infiniband|IB device .* not found|did not detect devices",
        "rdma.no-device",
        "The RDMA device is not available to user space: see `ibv_devices` and `rdma link` on the node.",
    ),
    (
        r"(?i)couldn't allocate MR|cannot allocate memory|memlock",
        "rdma.memory",
        "Memory cannot be registered: see `ulimit -l` and free memory.",
    ),
    (
        r"(?i)couldn't connect|no connection with|unable to (?:open|init)",
        "rdma.no-meeting",
        "The two ends cannot connect by TCP over the VFs' own addresses: a firewall on the nodes, or a node that hangs.",
    ),
)


def rdma(evidence: Evidence) -> list[Result]:
    """Judge RDMA write and ping-pong over every path: data arrives, as fast as the hardware class allows."""
    answers = {(a["id"], a["role"]): a for seen in evidence.hosts.values() for a in seen.rdma}
    results = []
    lost: dict[Place, collections.Counter[str]] = {}
    for path in evidence.paths:
        for kind in KINDS:
            reason = rdma_reason(evidence, path, kind)
            if reason:
                results.append(_not_run(f"{path} {kind}", path, reason))
                continue
            for client, server in directions(evidence, path, kind):
                name = test_id(kind, client, server)
                pair = answers.get((name, "client")), answers.get((name, "server"))
                results.append(_rdma(evidence, path, kind, client, server, *pair))
                for end, answer in zip((client, server), pair, strict=True):
                    lost.setdefault(end.place, collections.Counter()).update((answer or {}).get("lost") or {})
    broken = {frozenset(r.ends) for r in results if r.status != "pass" and r.subject.endswith("write")}
    for group in together(evidence):
        well = not any(frozenset((path.a.place, path.b.place)) in broken for path in group)
        results += _together(evidence, group, answers) if well else []
    return [*outliers.marked(results), *_lost(lost)]


def _lost(lost: t.Mapping[Place, t.Mapping[str, int]]) -> t.Iterator[Result]:
    """Warn of packets lost during the tests: RDMA resends them, so the tests pass, only slower."""
    for place, counts in lost.items():
        if counts:
            grown = ", ".join(f"{name} +{count}" for name, count in sorted(counts.items()))
            message = f"packets were lost or repeated at {place} during the RDMA tests: {grown}."
            yield Result(f"{place} errors", "warn", (place,), message, "rdma.repeated", place, _REPEATED)


_REPEATED = (
    "Run it again; if they grow again, check the cable, flow control on the switch ports, and the MTU of both ends."
)


def _together(
    evidence: Evidence, group: t.Sequence[Path], answers: t.Mapping[tuple[str, str], Plain]
) -> t.Iterator[Result]:
    """Judge what a port's functions carry at the same time, if each of them works alone."""
    least = least_together(evidence, group) or 0.0
    for way in zip(*(directions(evidence, path, "write") for path in group), strict=True):
        client, server = way[0]
        subject = f"{client.host} port {client.function.port} > {server.host} port {server.function.port} together"
        ends = (Place(client.host), Place(server.host))
        told = [answers.get((test_id("together", a, b), role)) for a, b in way for role in ("client", "server")]
        sent = told[::2]
        if None in told:
            yield Result(subject, "not run", ends, "the functions were not tested at the same time.")
            continue
        bad = next((answer for answer in sent if answer and answer["status"] != "ok"), None)
        if bad:
            message = f"each function works alone, but not all at the same time: {bad['message'].rstrip('.')}."
            yield Result(subject, "fail", ends, message, "rdma.together", None, _TOGETHER)
            continue
        total = round(sum(answer["figures"].get("gbps", 0.0) for answer in sent if answer), 3)
        figures: Plain = {"gbps_together": total, "functions": len(group)}
        if total >= least:
            yield Result(subject, "pass", ends, f"{total:g} Gb/s over {len(group)} functions", figures=figures)
        else:
            message = f"{len(group)} functions carry {total:g} Gb/s at the same time, at least {least:g} is required."
            yield Result(subject, "fail", ends, message, "rdma.together", None, _TOGETHER, figures=figures)


_TOGETHER = (
    "Each function alone is fine: check their PCIe width (firmware before 2026-04 wires the second at Gen5 x2), the "
    "switch port's rate limit, and other load."
)


def _rdma(
    evidence: Evidence, path: Path, kind: str, client: End, server: End, sent: Plain | None, served: Plain | None
) -> Result:
    subject = f"{client} > {server} {kind}"
    ends = (client, server)
    if sent is None or served is None:
        lacking = client.host if sent is None else server.host
        why = evidence.hosts[lacking].rdma_error or "no answer"
        return _not_run(subject, path, (f"the test did not run on {lacking}: {why}", True))
    if sent["status"] == "missing":
        return _not_run(subject, path, (f"{client.host}: {sent['message']}", True))
    if sent["status"] != "ok":
        said = sent["message"] + (f" ({served['message']})" if served["message"] else "")
        other = f"rdma.{'hang' if sent['status'] == 'hang' else 'failed'}", "See the program's message."
        cause, remedy = next((entry[1:] for entry in _SAID if re.search(entry[0], said)), other)
        return _failed(
            subject, ends, cause, f"{_NAMES[kind]} from {client} to {server} fails: {said.rstrip('.')}.", remedy
        )
    # A program that printed no number has measured nothing.
    measured = {name: value for name, value in sent["figures"].items() if value is not None}
    figures = measured | {"program": sent["program"]}
    least = _least(evidence, path, kind)
    fault = ""
    if kind == "write" and not figures.get("gbps", 0) >= least:
        fault = f"{figures.get('gbps', 0):g} Gb/s, at least {least:g} is required"
    elif kind == "write" and not (
        measured.get("gbps", 0) > 0 or (measured.get("gbps") == 0 and measured.get("iterations", 0) > 0)
    ):
        # Where no bandwidth is required, messages that arrived too slowly for the program's figures still count as arrived.
        fault = "no data arrived"
    most = evidence.thresholds["rdma"]["pingpong"].get("max_usec")
    if kind == "pingpong" and most is not None and not figures.get("usec", most + 1) <= most:
        fault = f"{figures.get('usec', 0):g} us one way, at most {most:g} is allowed"
    if fault:
        remedy = "Compare with the other functions and hosts; see the link's speed, PCIe width, MTU, and other load."
        result = _failed(subject, ends, "rdma.slow", f"{_NAMES[kind]} from {client} to {server}: {fault}.", remedy)
        result.figures.update(figures)
        return result
    unit, value = ("Gb/s", figures["gbps"]) if kind == "write" else ("us", figures.get("usec", 0.0))
    return Result(subject, "pass", (client.place, server.place), f"{value:g} {unit}", figures=figures)


def _least(evidence: Evidence, path: Path, kind: str) -> float:
    """Return the Gb/s required at the path's MTU: that of the largest listed MTU not above it."""
    if kind != "write":
        return 0.0
    size = min(path.a.vf.mtu, path.b.vf.mtu)
    listed = evidence.thresholds["rdma"]["write"]["min_gbps"]
    fitting = [entry for entry in listed if entry["mtu"] <= size] or [min(listed, key=lambda entry: entry["mtu"])]
    return float(max(fitting, key=lambda entry: entry["mtu"])["gbps"])
