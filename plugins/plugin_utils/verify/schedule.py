# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who sends what to whom, and when: each host's probes, and rounds of RDMA tests in which hosts are paired."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.perftest import PACKAGE, PROGRAMS
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.values import End, Evidence, Path, Plain

Pair = tuple[str, str]
KINDS = tuple(PROGRAMS)  # kinds of RDMA tests: write, pingpong


def rounds(pairs: t.Collection[Pair], order: t.Sequence[str]) -> list[list[Pair]]:
    """Spread pairs of hosts over rounds so that each pair meets once and no host has two peers in one round.

    If every host meets every other, it is a tournament: n - 1 rounds for an even number of hosts, n for an odd one.
    Otherwise each pair gets the first round in which both are free, at most 2 x (most peers of a host) - 1 rounds.
    """
    place = {host: number for number, host in enumerate(order)}
    wanted = sorted({tuple(sorted(pair, key=place.__getitem__)) for pair in pairs}, key=lambda p: [place[h] for h in p])
    hosts = [host for host in order if any(host in pair for pair in wanted)]
    greedy: list[list[Pair]] = []
    for a, b in wanted:
        for meeting in greedy:
            if not any(a in pair or b in pair for pair in meeting):
                meeting.append((a, b))
                break
        else:
            greedy.append([(a, b)])
    asked = set(wanted)
    circle = [[pair for pair in meeting if pair in asked] for meeting in _tournament(hosts)]
    return min([meeting for meeting in circle if meeting], greedy, key=len)


def _tournament(hosts: t.Sequence[str]) -> list[list[Pair]]:
    """The circle method: one host stays fixed, and the others rotate around it by one place per round."""
    place = {host: number for number, host in enumerate(hosts)}
    seats: list[str | None] = [*hosts, *([None] if len(hosts) % 2 else [])]
    half = len(seats) // 2
    found: list[list[Pair]] = []
    for _round in range(len(seats) - 1):
        meeting = [(a, b) for a, b in zip(seats[:half], reversed(seats[half:]), strict=True) if a and b]
        found.append([(a, b) if place[a] < place[b] else (b, a) for a, b in meeting])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return found


def probes(evidence: Evidence) -> dict[str, Plain]:
    """Return fabric_probe's arguments `arp` and `ping` for each host that was seen: every peer, from every VF."""
    found: dict[str, Plain] = {name: {"arp": [], "ping": []} for name, seen in evidence.hosts.items() if seen.node}
    for path in evidence.paths:
        if evidence.blocked(path.ends):
            continue
        for end, peer in (path.ends, path.ends[::-1]):
            asked = {"netdev": netdev_of(evidence, end), "source": end.vf.address, "address": peer.vf.address}
            found[end.host]["arp"].append(asked)
            found[end.host]["ping"].append({**asked, "mtu": min(end.vf.mtu, peer.vf.mtu)})
    return found


def netdev_of(evidence: Evidence, end: End) -> str:
    """Return the netdev of a VF on the host."""
    vf = evidence.vf(end)
    if vf is None or vf.netdev is None:
        raise CollectionError(f"{end}: it has no netdev.")
    return vf.netdev.name


def rdma_reason(evidence: Evidence, path: Path, kind: str) -> tuple[str, bool] | None:
    """Return why an RDMA test cannot run on a path, and whether it should have, or None if it can."""
    blocked = evidence.blocked(path.ends)
    if blocked:
        return blocked
    for end in path.ends:
        seen = evidence.hosts[end.host]
        if seen.probe is None:
            return f"the probe did not run on {end.host}: {seen.probe_error or 'no answer'}", True
        if end.place not in evidence.gid_entries:
            return f"{end} has no valid GID", True
    for end, peer in (path.ends, path.ends[::-1]):
        answer = evidence.answers.get(("ping", end.host, netdev_of(evidence, end), peer.vf.address))
        if not answer or answer["small"] != "ok":
            return f"{end} does not reach {peer} at all ({answer['small'] if answer else 'no ping'})", True
    if program_of(evidence, path, kind) is None:
        wanted = PROGRAMS[kind][0]
        lacking = [end.host for end in path.ends if not _programs(evidence, end.host).get(wanted)]
        return f"{wanted} is not installed on {' and '.join(lacking)}: apt install {PACKAGE[wanted]}", True
    return None


def program_of(evidence: Evidence, path: Path, kind: str) -> str | None:
    """Return the test program of this kind that both ends have, or None."""
    have = [_programs(evidence, end.host) for end in path.ends]
    return next((name for name in PROGRAMS[kind] if all(names.get(name) for names in have)), None)


def _programs(evidence: Evidence, host: str) -> Plain:
    return (evidence.hosts[host].probe or {}).get("programs") or {}


def directions(evidence: Evidence, path: Path, kind: str) -> list[tuple[End, End]]:
    """Return (client, server) of each test of a kind: data flows from client to server; a ping-pong goes both ways."""
    both = kind == "write" and evidence.thresholds["rdma"]["write"]["both_ways"]
    return [path.ends, path.ends[::-1]] if both else [path.ends]


def test_id(kind: str, client: End, server: End) -> str:
    """Return the test's id, by which its two ends and the report match up."""
    return f"{kind}/{client}>{server}".replace(" ", ":")


def together(evidence: Evidence) -> list[tuple[Path, ...]]:
    """Return the paths that write at the same time: those of one VF index over all functions of a pair's port.

    One group per pair and port, of the first VF index that can be tested on all; none if the thresholds ask for none.
    """
    groups: dict[tuple[str, int, str, int, int], list[Path]] = {}
    for path in evidence.paths:
        if least_together(evidence, (path,)) is not None:
            key = (path.a.host, path.a.function.port, path.b.host, path.b.function.port, path.a.vf.index)
            groups.setdefault(key, []).append(path)
    chosen: dict[tuple[t.Any, ...], tuple[Path, ...]] = {}
    for key, paths in sorted(groups.items(), key=lambda item: item[0][-1]):
        if len(paths) > 1 and not any(rdma_reason(evidence, path, "write") for path in paths):
            chosen.setdefault(key[:-1], tuple(paths))
    return list(chosen.values())


def least_together(evidence: Evidence, paths: t.Sequence[Path]) -> float | None:
    """Return the Gb/s required of these paths together, from the largest listed MTU that all support; None if none is."""
    size = min(min(path.a.vf.mtu, path.b.vf.mtu) for path in paths)
    listed = evidence.thresholds["rdma"]["write"].get("min_gbps_together", ())
    fitting = [entry for entry in listed if entry["mtu"] <= size]
    return float(max(fitting, key=lambda entry: entry["mtu"])["gbps"]) if fitting else None


def rdma_rounds(evidence: Evidence, run: str = "") -> list[dict[str, list[Plain]]]:
    """Return the rounds of RDMA tests: for each, fabric_probe's argument `rdma` by host. run: this verify, in words."""
    ready: dict[Pair, list[tuple[Path, str]]] = {}
    for path in evidence.paths:
        for kind in KINDS:
            if rdma_reason(evidence, path, kind) is None:
                ready.setdefault((path.a.host, path.b.host), []).append((path, kind))
    at_once: dict[Pair, list[tuple[Path, ...]]] = {}
    for group in together(evidence):
        at_once.setdefault((group[0].a.host, group[0].b.host), []).append(group)
    found = []
    for meeting in rounds(ready, list(evidence.plan)):
        tests: dict[str, list[Plain]] = {}
        for pair in meeting:
            number = 0
            for group in at_once.get(pair, ()):
                for way in zip(*(directions(evidence, path, "write") for path in group), strict=True):
                    name = test_id("together", *way[0])
                    for path, (client, server) in zip(group, way, strict=True):
                        for role, end, peer in (("client", client, server), ("server", server, client)):
                            test = _test(evidence, path, "write", end, peer, number)
                            test |= {"id": test_id("together", client, server), "role": role, "together": name}
                            tests.setdefault(end.host, []).append(test)
                        number += 1
            for path, kind in ready[pair]:
                for client, server in directions(evidence, path, kind):
                    for role, end, peer in (("client", client, server), ("server", server, client)):
                        test = _test(evidence, path, kind, end, peer, number)
                        test |= {"id": test_id(kind, client, server), "role": role}
                        tests.setdefault(end.host, []).append(test)
                    number += 1
        found.append({host: [{**test, "run": run} for test in asked] for host, asked in tests.items()})
    return found


def _test(evidence: Evidence, path: Path, kind: str, end: End, peer: End, number: int) -> Plain:
    settings = evidence.thresholds["rdma"]
    wanted = settings[kind]
    entry = evidence.gid_entries[end.place]
    test: Plain = {
        "program": program_of(evidence, path, kind),
        "hca": entry.hca,
        "hca_port": entry.port,
        "gid_index": entry.index,
        "address": end.vf.address,
        "peer": peer.vf.address,
        "port": settings["tcp_port"] + 2 * number,
        "size": wanted["size"],
    }
    length = "duration" if "duration" in wanted else "iterations"
    # ibv_rc_pingpong takes a number of iterations only.
    if test["program"] == "ibv_rc_pingpong":
        length = "iterations"
    test[length] = wanted.get(length, 1000)
    path_mtu = _path_mtu(evidence, path)
    return test | ({"path_mtu": path_mtu} if path_mtu else {})


def _path_mtu(evidence: Evidence, path: Path) -> int | None:
    """Return the RDMA path MTU of both ends' ports, or None if one of them does not report it."""
    found = []
    for end in path.ends:
        vf, entry = evidence.vf(end), evidence.gid_entries[end.place]
        ports = vf.hca.ports if vf and vf.hca else ()
        found.append(next((port.active_mtu for port in ports if port.number == entry.port), None))
    return min(found) if all(found) else None  # type: ignore[type-var]
