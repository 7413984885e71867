# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Assembles communicators from all their ranks, and finds what the logs lack to prove what each channel uses.

The required lines are those that NCCL prints at INFO with the subsystem INIT: each rank's start and completion, the
rings (rank 0) and trees (each rank) of every channel, one line for each end of a channel over a network, one line from
the sending end inside a node, and "Connected all rings" (or trees) once all of them are connected.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.lines import Link
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Evidence, LinkKey, Member, Process

MOST_GAPS = 40


@dataclass(slots=True)
class Communicator:
    """One communicator of the job.

    scope: `alone` (one rank), `node` (nothing leaves a node) or `network`. state: `complete`, `idle` (torn down without
    a channel), or `incomplete`, with the gaps in words. stalled: all ranks are present and all stopped at the same step
    before their channels connected, which suggests a hang rather than a truncated log.
    """

    id: str
    nranks: int
    members: dict[int, tuple[int, Member]] = field(default_factory=dict)  # rank -> (process, member)
    twice: list[int] = field(default_factory=list)
    nodes: int | None = None
    channels: int | None = None
    scope: t.Literal["alone", "node", "network"] = "network"
    state: t.Literal["complete", "idle", "incomplete"] = "incomplete"
    gaps: list[str] = field(default_factory=list)
    stalled: bool = False

    @property
    def missing(self) -> list[int]:
        """Ranks that are in no log."""
        return [rank for rank in range(self.nranks) if rank not in self.members]

    @property
    def networks(self) -> set[str]:
        """The networks that its channels name."""
        return {name for _process, member in self.members.values() for name in member.networks}

    @property
    def insides(self) -> set[str]:
        """What its intra-node channels use."""
        found = (link.inside for _process, member in self.members.values() for link in member.links.values())
        return {inside for inside in found if inside}

    @property
    def linked(self) -> bool:
        """Whether any channel is in the logs."""
        return any(member.links for _process, member in self.members.values())


def communicators(evidence: Evidence) -> list[Communicator]:
    """Merge the ranks' views and judge each communicator."""
    found: dict[t.Hashable, Communicator] = {}
    for number, process in enumerate(evidence.processes):
        keys: list[t.Hashable] = []
        for place, member in enumerate(process.members):
            keys.append(_key(number, place, member, keys))
            made = found.get(keys[-1])
            if made is None:
                made = found[keys[-1]] = Communicator(_name(member, process, len(found)), member.nranks)
            if member.rank in made.members or member.nranks != made.nranks:
                made.twice.append(member.rank)
                if member.networks - made.networks:  # keep the networks that it names
                    made.members.setdefault(-1 - len(made.twice), (number, member))
            else:
                made.members[member.rank] = (number, member)
    for each in found.values():
        _judge(each)
    return list(found.values())


def _key(number: int, place: int, member: Member, keys: list[t.Hashable]) -> t.Hashable:
    if member.comm_id and member.comm_id != "0x0":
        return member.comm_id
    if member.parent is not None and member.child is not None:
        return (keys[member.parent], member.child)
    return (number, place)


def _name(member: Member, process: Process, number: int) -> str:
    if member.comm_id and member.comm_id != "0x0":
        return member.comm_id
    return (
        f"{member.child or 'unnamed'} ({number})" if member.child else f"{member.comm} of {process.host}:{process.pid}"
    )


def _judge(comm: Communicator) -> None:
    members = {rank: member for rank, (_process, member) in comm.members.items() if rank >= 0}
    comm.nodes = max((member.nodes for member in members.values() if member.nodes), default=None)
    comm.channels = max((member.channels for member in members.values() if member.channels), default=None)
    if comm.nranks == 1:
        comm.scope, comm.state = "alone", "complete"
        return
    gaps = _gaps_of_start(comm, members)
    if comm.nodes == 1 and not comm.networks:
        comm.scope, comm.gaps = "node", gaps
        comm.state = "incomplete" if gaps else "complete"
        return
    if not gaps and not comm.linked and all(m.gone for m in members.values()):
        comm.state = "idle" if not any(m.connected for m in members.values()) else "incomplete"
        return
    connected = any(member.connected for member in members.values())
    comm.stalled = not comm.missing and not connected and not _one_sided(members)
    gaps += _gaps_of_channels(comm, members)
    comm.gaps = gaps[:MOST_GAPS]
    comm.state = "incomplete" if gaps else "complete"


def _gaps_of_start(comm: Communicator, members: dict[int, Member]) -> list[str]:
    gaps = []
    if comm.missing:
        gaps.append(f"{numbers(comm.missing)} of {comm.nranks} not in the logs")
    if comm.twice:
        gaps.append(f"{numbers(comm.twice)} in the logs twice: a log given twice, or two runs mixed")
    for what, lacking in (
        ("the start (Init START)", [r for r, m in members.items() if not m.started]),
        ("the number of nodes (nNodes)", [r for r, m in members.items() if m.nodes is None]),
        ("the end of the start (Init COMPLETE)", [r for r, m in members.items() if not m.complete]),
    ):
        if lacking:
            gaps.append(f"{numbers(lacking)}: {what} is missing")
    return gaps


def _gaps_of_channels(comm: Communicator, members: dict[int, Member]) -> list[str]:
    connected = set().union(*(member.connected for member in members.values())) if members else set()
    usual = {key for member in members.values() for key in member.links if key[1] == 0}
    gaps: list[str] = []
    if comm.channels is None:
        gaps.append("the number of channels is missing")
    for what in sorted(connected & {"rings", "trees"}):
        if silent := [rank for rank, member in members.items() if what not in member.connected]:
            gaps.append(f"{numbers(silent)}: 'Connected all {what}' is missing")
    if usual and not connected & {"rings", "trees"}:
        gaps.append("channels are set up, and no rank says that all rings or trees are connected")
    most = max((member.most for member in members.values() if member.most), default=None)
    if most is not None and (beyond := sorted({key[0] for key in usual if key[0] >= most})):
        gaps.append(f"channel {beyond[0]} is not one of its {most}: two runs mixed")
    if alone := [rank for rank, member in members.items() if member.local_ranks == 1 and _inside(member)]:
        gaps.append(f"{numbers(alone)}: channels inside a node on which no other rank is: two runs mixed")
    if not any(member.links for member in members.values()):
        gaps.append("there is no line of a channel: it is not used, or the log ends before")
    for channel in range(comm.channels or 0):
        if "rings" in connected:
            gaps += _ring_gaps(comm, members, channel)
        if "trees" in connected:
            gaps += _tree_gaps(members, channel)
        if len(gaps) > MOST_GAPS:
            return gaps
    return gaps + _one_sided(members) + _peer_gaps(members)


def _inside(member: Member) -> bool:
    """Whether a rank has intra-node channels. NCCL logs NVLink between nodes (MNNVL) in the same form."""
    return any(link.inside and "MNNVL" not in link.inside for link in member.links.values())


def _ring_gaps(comm: Communicator, members: dict[int, Member], channel: int) -> list[str]:
    order = next((m.rings[channel] for m in members.values() if len(m.rings.get(channel, ())) == comm.nranks), None)
    if order is not None:
        edges = list(zip(order, order[1:] + order[:1], strict=True))
    elif all(channel in member.hops for member in members.values()):
        edges = [(rank, member.hops[channel][1]) for rank, member in members.items()]
    elif any(channel in member.rings for member in members.values()) and comm.nranks > 16:
        return _some_neighbour(members, channel)  # NCCL shortens long rings
    else:
        return [f"channel {channel}: the order of its ring is missing"]
    return [gap for src, dst in edges if (gap := _edge_gap(members, channel, src, dst))]


def _some_neighbour(members: dict[int, Member], channel: int) -> list[str]:
    links = [key for member in members.values() for key in member.links if key[:2] == (channel, 0)]
    lacking = [rank for rank in members if rank not in {k[2] for k in links} or rank not in {k[3] for k in links}]
    return [f"channel {channel}: {numbers(lacking)} with no neighbour"] if lacking else []


def _tree_gaps(members: dict[int, Member], channel: int) -> list[str]:
    gaps = []
    for rank, member in members.items():
        if channel not in member.trees:
            gaps.append(f"channel {channel}: the tree of rank {rank} is missing")
            continue
        for other in member.trees[channel]:
            gaps += filter(None, (_edge_gap(members, channel, rank, other), _edge_gap(members, channel, other, rank)))
    return gaps


def _edge_gap(members: dict[int, Member], channel: int, src: int, dst: int) -> str | None:
    if src not in members:
        return None  # already reported as a missing rank
    sent = members[src].links.get((channel, 0, src, dst, False))
    if sent is None:
        return f"channel {channel}: rank {src} does not say how it sends to rank {dst}"
    if sent.network and dst in members and (channel, 0, src, dst, True) not in members[dst].links:
        return f"channel {channel}: rank {dst} does not say how it receives from rank {src}"
    return None


def _one_sided(members: dict[int, Member]) -> list[str]:
    """Find network channels that only one of their ends logs."""
    gaps = []
    for member in members.values():
        for key, link in member.links.items():
            if link.network is None:
                continue
            other = members.get(link.src if key[4] else link.dst)
            if other is not None and (*key[:4], not key[4]) not in other.links:
                gaps.append(f"channel {key[0]}/{key[1]}: only one end of {key[2]} -> {key[3]} is in the logs")
    return gaps


def _peer_gaps(members: dict[int, Member]) -> list[str]:
    """Check send/receive: it uses all channels of a peer at once, and only the process's next step shows that set-up ended."""
    gaps = []
    for rank, member in members.items():
        direct = [key for key, link in member.links.items() if key[1] > 0 and link.network]
        counts: dict[tuple[int, int, int, bool], int] = {}
        for key in direct:
            counts[key[1:]] = counts.get(key[1:], 0) + 1
        for (_conn, src, dst, _receives), count in counts.items():
            if member.per_peer and count < member.per_peer:
                gaps.append(f"rank {rank}: {count} of {member.per_peer} channels {src} -> {dst} for send and receive")
        if direct and not member.connected and not member.goes_on:
            gaps.append(f"rank {rank}: the log ends with the set-up of channels for send and receive")
    return gaps


def numbers(ranks: t.Sequence[int]) -> str:
    """Name ranks: `rank 3`, `ranks 0, 1 and 6 more`."""
    shown = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"rank{'' if len(ranks) == 1 else 's'} {shown}"


def all_links(comm: Communicator) -> t.Iterator[tuple[int, LinkKey, Link]]:
    """Yield every channel line with the process that printed it."""
    for number, member in comm.members.values():
        for key, link in member.links.items():
            yield number, key, link
