# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What carries the traffic between nodes: the verdict over all ranks, channels and communicators, and its causes.

The verdict `ib` takes complete evidence: every rank of the job, every channel of every communicator that leaves a node,
both ends of each, and no sign of failure. A single channel over TCP makes it `socket` (or `mixed`).
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.lines import NOWHERE, Device, Link, LocalGid
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Evidence, Process
from ansible_collections.dgxspark.cluster.plugins.module_utils.signatures import Signature
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import causes, runs
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.communicators import (
    Communicator,
    all_links,
    communicators,
    numbers,
)

Verdict = t.Literal["ib", "socket", "p2p", "mixed", "unknown", "failed"]


@dataclass(frozen=True, slots=True)
class Expected:
    """What the caller knows of the job: total ranks, nodes, ranks per node."""

    world_size: int | None = None
    nodes: int | None = None
    ranks_per_node: int | None = None


def judge(
    evidence: Evidence, signatures: t.Sequence[Signature] = (), expected: Expected | None = None
) -> dict[str, t.Any]:
    """Return the full report in plain form. CollectionError if the logs hold nothing of NCCL.

    `verdict`, `complete` (whether the evidence is), `summary`, `findings` (causes, the likeliest first), `world`,
    `versions`, `communicators`, `ranks` and `links`.
    """
    expected = expected or Expected()
    empty = [name for name, count in evidence.sources.items() if not count]
    if not evidence.sources or (empty and len(empty) == len(evidence.sources)):
        raise CollectionError(
            f"{', '.join(empty) or 'The log'}: no NCCL output in it. Give the log of a rank that ran with "
            "NCCL_DEBUG=INFO, from its beginning."
        )
    comms = communicators(evidence)
    seen = _ranks_seen(comms)
    world = expected.world_size or max((comm.nranks for comm in comms), default=0)
    gaps = _gaps(evidence, comms, expected, seen, world)
    kinds = {causes.kind_of(name) for name in _networks(evidence, comms)}
    found = causes.of_signs(evidence, signatures)
    failed = causes.failures(evidence)
    verdict: Verdict
    if failed or any(cause.fatal for cause in found):
        verdict = "failed"
    elif len(kinds) > 1:
        verdict = "mixed"
    elif kinds == {"socket"}:
        verdict = "socket"
    elif kinds == {"ib"}:
        verdict = "unknown" if gaps else "ib"
    else:
        verdict = _inside(comms, kinds, world, expected)
    if verdict in ("ib", "p2p"):  # then a message about devices not found means nothing
        found = [cause for cause in found if cause.finding.severity != "info"]
    links = _plain_links(evidence, comms)
    derived = [
        *causes.of_verdict(evidence, comms, verdict, gaps, failed),
        *causes.soft_roce({port["name"] for link in links for port in link["ports"]}),
    ]
    return {
        "verdict": verdict,
        "complete": not gaps,
        "summary": _summary(verdict, comms, world, gaps, _networks(evidence, comms)),
        "findings": causes.ordered([*found, *derived]),
        "gaps": gaps,
        "world": {"expected": expected.world_size, "nranks": world, "seen": seen},
        "versions": sorted(evidence.versions),
        "communicators": [_plain_communicator(comm) for comm in comms],
        "ranks": [_plain_process(number, process) for number, process in enumerate(evidence.processes)],
        "links": links,
    }


def _ranks_seen(comms: t.Sequence[Communicator]) -> int:
    """Count the ranks in the logs: a process counts once, or as often as it has ranks in one communicator."""
    most: dict[int, int] = {}
    for comm in comms:
        here: dict[int, int] = {}
        for rank, (number, _member) in comm.members.items():
            here[number] = here.get(number, 0) + (rank >= 0)
        for number, count in here.items():
            most[number] = max(most.get(number, 0), count)
    return sum(most.values())


def _networks(evidence: Evidence, comms: t.Sequence[Communicator]) -> set[str]:
    found = {name for comm in comms for name in comm.networks} | (evidence.stray - {""})
    return found.union(*(runs.networks(process) for process in evidence.processes))


def _gaps(evidence: Evidence, comms: t.Sequence[Communicator], expected: Expected, seen: int, world: int) -> list[str]:
    """Return what is missing to prove what every channel uses; empty if nothing is."""
    gaps = [f"{name}: no NCCL output in it" for name, count in evidence.sources.items() if not count]
    gaps += runs.gaps(evidence, comms, _networks(evidence, comms), lambda number: causes.who(evidence, number))
    if not any(comm.nranks > 1 for comm in comms):
        gaps.append("no communicator of several ranks is in the logs")
    for comm in comms:
        if comm.state == "incomplete":
            gaps += [f"communicator {comm.id}: {gap}" for gap in comm.gaps or ["nothing shows whether it was used"]]
    if seen < world:
        gaps.append(f"{seen} of {world} ranks are in the logs")
    if seen > world:
        gaps.append(
            f"{seen} ranks are in the logs, and no communicator has more than {world}: the number of ranks is unknown"
        )
    if any(comm.nranks > world for comm in comms):
        gaps.append(f"a communicator has more ranks than the expected {world}")
    spread = max((comm.nodes or 0 for comm in comms), default=0)
    if expected.nodes and spread < expected.nodes:
        gaps.append(f"NCCL sees {spread} nodes, not {expected.nodes}")
    if expected.ranks_per_node and world:
        largest = [m for comm in comms if comm.nranks == world for _number, m in comm.members.values()]
        if wrong := [m.rank for m in largest if m.local_ranks not in (None, expected.ranks_per_node)]:
            gaps.append(f"{numbers(sorted(wrong))}: not {expected.ranks_per_node} ranks on the node")
    if any(process.host == NOWHERE for process in evidence.processes):
        gaps.append("lines without host and process: they cannot be told apart by rank")
    if any(process.loose for process in evidence.processes) or evidence.stray:
        gaps.append("there are channels that belong to no communicator of the logs")
    if len({process.version for process in evidence.processes if process.version}) > 1:
        gaps.append("the ranks have different versions of NCCL")
    return gaps


def _inside(comms: t.Sequence[Communicator], kinds: set[str], world: int, expected: Expected) -> Verdict:
    """The verdict if no channel names IB or Socket: `p2p` if nothing can leave a node."""
    if kinds or any(comm.scope == "network" and comm.state != "idle" for comm in comms):
        return "unknown"
    inside = [comm for comm in comms if comm.scope == "node" and (comm.linked or comm.state == "complete")]
    if expected.nodes and expected.nodes > 1 and not any(comm.state == "idle" for comm in comms):
        return "unknown"
    return "p2p" if any(comm.nranks == world for comm in inside) or (inside and len(comms) > len(inside)) else "unknown"


def _summary(
    verdict: Verdict, comms: t.Sequence[Communicator], world: int, gaps: t.Sequence[str], networks: set[str]
) -> str:
    over = [comm for comm in comms if comm.scope == "network" and comm.linked]
    names = " and ".join(sorted(networks))
    words = {
        "ib": f"All {world} ranks use RDMA ({names}) between nodes, on every channel of {len(over)} communicator(s).",
        "socket": f"Traffic between nodes goes over TCP ({names}).",
        "mixed": f"Some channels use {names}: not all traffic between nodes takes the same network.",
        "p2p": "Nothing leaves a node: all channels are between GPUs of one machine.",
        "failed": "NCCL failed.",
        "unknown": "The logs do not prove what carries the traffic between nodes.",
    }[verdict]
    return words + (f" What is missing: {'; '.join(gaps[:5])}." if gaps and verdict != "failed" else "")


def _plain_communicator(comm: Communicator) -> dict[str, t.Any]:
    links = [link for _number, _key, link in all_links(comm)]
    return {
        "id": comm.id,
        "nranks": comm.nranks,
        "nodes": comm.nodes,
        "channels": comm.channels,
        "scope": comm.scope,
        "state": comm.state,
        "networks": sorted(comm.networks),
        "inside": sorted(comm.insides),
        "missing_ranks": comm.missing,
        "gaps": comm.gaps,
        "gpudirect": _all_or_none([link.gdr for link in links if link.network]),
        "pxn": any(link.proxy is not None for link in links),
        "rings": {str(c): list(order) for _n, m in comm.members.values() for c, order in m.rings.items()},
    }


def _all_or_none(flags: t.Sequence[bool]) -> bool | None:
    """True or False if all agree, else None."""
    return flags[0] if flags and len(set(flags)) == 1 else None


def _listed(process: Process, network: str) -> tuple[Device, ...]:
    """Return a network's devices; external RDMA plugins list theirs under NCCL's own name."""
    own = process.devices.get(network, ())
    return own or (process.devices.get("IB", ()) if causes.kind_of(network) == "ib" else ())


def _device(process: Process, link: Link) -> list[tuple[str, int, str]]:
    """Return the ports behind a network device's number: from the device list, or from the fused device of that number."""
    if link.device is None:
        return []
    listed = _listed(process, link.network or "")
    if fused := process.fused.get(link.device):
        by_name = {hca: (hca, port, kind) for each in listed for hca, port, kind in each.ports}
        return [by_name.get(name, (name, 0, "")) for name in fused.split("+")]
    return list(listed[link.device].ports) if link.device < len(listed) else []


def _gid(process: Process, network: str, hca: str, port: int) -> LocalGid | None:
    """Return the GID that a port's queue pairs use, if the log (subsystem NET) shows it."""
    physical = [name for each in _listed(process, network) for name, _port, _link in each.ports]
    for gid in process.gids:
        name = gid.hca or (physical[gid.device] if gid.device is not None and gid.device < len(physical) else None)
        if (name, gid.port) == (hca, port):
            return gid
    return None


def roce_version(process: Process, link: str, of_job: str | None) -> int | None:
    """Return the RoCE version if known: from NCCL_IB_ROCE_VERSION_NUM, or NCCL's default (2, from 2.21 on).

    of_job: the NCCL version that the logs name without naming a rank.
    """
    if link != "RoCE":
        return None
    if said := process.settings.get("NCCL_IB_ROCE_VERSION_NUM"):
        return int(said) if re.fullmatch(r"[0-9]{1,15}", said) else None
    pinned = process.settings.get("NCCL_IB_GID_INDEX", "-1") != "-1"
    version = tuple(int(part) for part in (process.version or of_job or "0").split("."))
    return 2 if version >= (2, 21) and not pinned else None


def _plain_process(number: int, process: Process) -> dict[str, t.Any]:
    largest = max(process.members, key=lambda member: member.nranks, default=None)
    return {
        "process": number,
        "source": process.source,
        "host": process.host,
        "pid": process.pid,
        "rank": largest.rank if largest else None,
        "nranks": largest.nranks if largest else None,
        "version": process.version,
        "network": process.network,
        "plugin": process.plugin,
        "oob_interface": process.oob,
        "no_device_found": process.no_device,
        "devices": {
            name: [["%s:%d/%s" % port for port in device.ports] for device in devices]  # noqa: UP031
            for name, devices in process.devices.items()
        },
        "settings": dict(process.settings),
    }


def _plain_links(evidence: Evidence, comms: t.Sequence[Communicator]) -> list[dict[str, t.Any]]:
    """Return one row for each set of like channels between two ranks, as one side logs it."""
    rows: dict[tuple[t.Any, ...], set[int]] = {}
    of_job = next(iter(evidence.versions)) if len(evidence.versions) == 1 else None
    for comm in comms:
        for number, key, link in all_links(comm):
            kind = "receive" if key[4] else "send"
            row = (comm.id, number, link.src, link.dst, kind, link.conn, link.network, link.inside, link.device)
            rows.setdefault((*row, link.proxy, link.gdr), set()).add(link.channel)
    plain = []
    for (comm_id, number, src, dst, kind, conn, network, inside, device, proxy, gdr), channels in rows.items():
        process = evidence.processes[number]
        ports = _device(process, Link(0, conn, src, dst, kind, network, inside, device, proxy, gdr))
        plain.append(
            {
                "communicator": comm_id,
                "rank": dst if kind == "receive" else src,
                "peer": src if kind == "receive" else dst,
                "direction": kind,
                "connection": conn,
                "channels": sorted(channels),
                "transport": f"NET/{network}" if network else inside,
                "device": device,
                "ports": [_plain_port(process, of_job, network or "", *port) for port in ports],
                "gpudirect": gdr,
                "pxn_rank": proxy,
            }
        )
    return plain


def _plain_port(
    process: Process, of_job: str | None, network: str, name: str, port: int, link: str
) -> dict[str, t.Any]:
    gid = _gid(process, network, name, port)
    return {
        "name": name,
        "port": port,
        "link": link or None,
        "gid_index": gid.index if gid else None,
        "gid": gid.gid if gid else None,
        "roce_version": roce_version(process, link, of_job),
        "active_mtu": gid.mtu if gid else None,
    }
