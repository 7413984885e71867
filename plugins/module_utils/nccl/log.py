# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect what NCCL's logs say, line by line: the state grows with ranks × channels × communicators, not with lines.

A channel's line does not name its communicator. It belongs to the communicator that its thread is creating; if there is none
(from 2.22 on channels are connected at first use), to the one whose rank fits and that lacks that channel.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl import frames, lines
from ansible_collections.dgxspark.cluster.plugins.module_utils.signatures import (
    Matcher,
    Signature,
    compile_patterns,
    excerpt,
)
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

MOST_PENDING = 8192  # channel lines of a thread that wait for their communicator
MOST_SHOWN = 400  # characters kept of a line
MOST_SETTINGS = 100
MOST_WARNINGS = 3
MOST_PROCESSES = 10_000
INVALID_ARGUMENT = 4  # ncclInvalidArgument
# ncclCommDestroy (init.cc), PtrCheck and CommCheck (misc/argcheck.cc)
_NO_MORE = re.compile(r"comm \S+ has already been destroyed|comm argument is NULL|corrupted comm object detected")
# Lines without any of these are skipped: most of a log is the engine's own.
_WORTH = re.compile(r"NCCL|nccl| via |ibv_|libnvidia-ml|GLIBC_")

LinkKey = tuple[int, int, int, int, bool]  # channel, connection, from, to, whether the receiving side reports it


@dataclass(slots=True)
class Sign:
    """A signature that was found: how often, where, the first line and what the pattern captured."""

    id: str
    process: int | None
    line: str
    count: int = 1
    captured: dict[str, str] = field(default_factory=dict)
    after_end: bool = False  # all communicators of the process had been torn down


@dataclass(slots=True)
class Member:
    """A communicator as one of its ranks sees it."""

    comm: str
    rank: int
    nranks: int
    comm_id: str | None = None
    parent: int | None = None  # index in its process's list
    child: str | None = None  # which child of the parent
    nodes: int | None = None
    local_ranks: int | None = None
    started: bool = False
    complete: bool = False
    gone: str | None = None
    channels: int | None = None
    per_peer: int | None = None
    most: int | None = None  # channels of any kind
    rings: dict[int, tuple[int, ...]] = field(default_factory=dict)
    hops: dict[int, tuple[int, int]] = field(default_factory=dict)
    trees: dict[int, tuple[int, ...]] = field(default_factory=dict)
    connected: set[str] = field(default_factory=set)
    links: dict[LinkKey, lines.Link] = field(default_factory=dict)
    networks: set[str] = field(default_factory=set)
    goes_on: bool = False  # the process has moved on since the last link

    def fits(self, link: lines.Link) -> bool:
        """Whether this rank may have printed the line."""
        return self.gone is None and link.own == self.rank and max(link.src, link.dst) < self.nranks

    def add(self, link: lines.Link) -> None:
        """Store a line; if two contradict each other, the networks of both are kept."""
        self.links[link_key(link)] = link
        self.goes_on = False
        if link.network:
            self.networks.add(link.network)


@dataclass(slots=True)
class Process:
    """One process: on a Spark, one rank. A process id that starts over, as in a restarted pod, is another process."""

    source: str
    host: str
    pid: int
    version: str | None = None
    network: str | None = None
    plugin: str | None = None
    no_device: bool = False
    not_opened: list[str] = field(default_factory=list)  # RDMA devices that are listed and cannot be opened
    headless: bool = False  # it mentions a communicator whose start is not in the log
    oob: str | None = None
    devices: dict[str, tuple[lines.Device, ...]] = field(default_factory=dict)
    fused: dict[int, str] = field(default_factory=dict)
    gids: list[lines.LocalGid] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)  # the first ones that match no signature
    members: list[Member] = field(default_factory=list)
    loose: dict[LinkKey, lines.Link] = field(default_factory=dict)


@dataclass(slots=True)
class Evidence:
    """Everything that the logs said."""

    sources: dict[str, int] = field(default_factory=dict)  # name -> number of NCCL lines in it
    versions: set[str] = field(default_factory=set)
    settings: dict[str, str] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    signs: list[Sign] = field(default_factory=list)
    gave_up: list[tuple[int, str, int]] = field(default_factory=list)  # process, place, code
    stray: set[str] = field(default_factory=set)  # networks named by channel lines without NCCL's header


def link_key(link: lines.Link) -> LinkKey:
    """Return the key that identifies a channel's line."""
    return link.channel, link.conn, link.src, link.dst, link.direction == "receive"


@dataclass(slots=True)
class _Thread:
    member: Member | None = None
    pending: list[lines.Link] = field(default_factory=list)
    keys: set[LinkKey] = field(default_factory=set)
    linked: Member | None = None


class Reader:
    """Reads lines and keeps what matters."""

    def __init__(self, signatures: t.Sequence[Signature] = ()) -> None:
        self.evidence = Evidence()
        self._matcher = Matcher(compile_patterns({"id": each.id, "pattern": each.pattern} for each in signatures))
        self._processes: dict[tuple[str, str, int], int] = {}
        self._begun: dict[int, set[str]] = {}
        self._late: set[int] = set()  # processes that used what they had torn down
        self._threads: dict[tuple[int, int], _Thread] = {}
        self._signs: dict[tuple[str, int | None], Sign] = {}
        self._source = ""

    def read(self, source: str, raw_lines: t.Iterable[str]) -> None:
        """Read a log to its end."""
        self._source = source
        said = self.evidence.sources.setdefault(source, 0)
        for raw in frames.unwrapped(raw_lines):
            if not _WORTH.search(raw):
                continue
            for line in lines.split(raw):
                said += self._line(line)
        self.evidence.sources[source] = said

    def finish(self) -> Evidence:
        """Assign every waiting channel to its communicator; return what was found."""
        for number, thread in list(self._threads.items()):
            self._settle(self.evidence.processes[number[0]], thread)
        return self.evidence

    def _line(self, line: lines.Line) -> bool:
        if line.host is None:
            return self._without_header(line.text)
        event = lines.parse(line.text)
        number = self._number(line, event)
        process = self.evidence.processes[number]
        if event is None:
            known = self._look(line.text, number)
            if line.level == "WARN" and _NO_MORE.search(line.text) and self._ended(number):
                self._late.add(number)
            if line.level == "WARN" and not known:
                self._warned(process, number, line.text)
            return True
        thread = self._threads.get((number, line.tid))
        if thread is None:
            thread = self._threads[number, line.tid] = _Thread()
        handler = _HANDLERS.get(type(event))
        if isinstance(event, lines.Link):
            self._link(process, thread, event)
        elif isinstance(event, lines.GaveUp):
            if len(self.evidence.gave_up) < MOST_SETTINGS and not self._refused_late(number, event):
                self.evidence.gave_up.append((number, event.where, event.code))
        elif handler is not None:
            handler(self, process, thread, event)
        if isinstance(event, (lines.Chosen, lines.Devices, lines.LocalGid, lines.NotOpened, lines.Step)):
            self._look(line.text, number)
        return True

    def _warned(self, process: Process, number: int, text: str) -> None:
        shown = excerpt(text)
        if len(process.warnings) < MOST_WARNINGS and shown not in process.warnings and not self._ended(number):
            process.warnings.append(shown)

    def _without_header(self, text: str) -> bool:
        """Read a line without NCCL's header: its version, its variables, a cut channel line, an engine's error."""
        known = False
        if "NCCL_" in text:
            for match in _ASSIGNED.finditer(text):
                self._set(self.evidence.settings, match[1], match[2])
                known = True
        if " via " in text and (start := _CHANNEL.search(text)):
            event = lines.parse(text[start.start() :])
            if isinstance(event, lines.Link):
                self.evidence.stray.add(event.network or "")
                known = True
        if "NCCL version " in text and isinstance(
            event := lines.parse(text[text.index("NCCL version ") :]), lines.Version
        ):
            self.evidence.versions.add(event.version)
            known = True
        return self._look(text, None) or known

    def _number(self, line: lines.Line, event: lines.Event | None) -> int:
        """Return the process of a line: a new one if NCCL begins again under the same process id."""
        key = (self._source, line.host or "", line.pid)
        number = self._processes.get(key)
        begins = event.how if isinstance(event, lines.Begun) and line.host != lines.NOWHERE else None
        if number is None or (begins and self._is_over(number, begins)):
            if len(self._processes) >= MOST_PROCESSES:
                raise CollectionError(
                    f"{self._source}: more than {MOST_PROCESSES} processes are in these logs. "
                    "Give the logs of one run only."
                )
            number = self._processes[key] = len(self.evidence.processes)
            self.evidence.processes.append(Process(*key))
        if begins:
            self._begun.setdefault(number, set()).add(begins)
        return number

    def _is_over(self, number: int, begins: str) -> bool:
        """Whether a process has moved past its beginning."""
        process = self.evidence.processes[number]
        further = process.members or process.loose or process.devices or process.network or process.no_device
        return bool(further or process.headless or begins in self._begun.get(number, ()))

    def _look(self, text: str, process: int | None) -> bool:
        """Look for signatures; return whether one was found."""
        found = self._matcher.find(text)
        for pattern, match in found:
            name = pattern.id
            sign = self._signs.get((name, process))
            if sign:
                sign.count += 1
                continue
            captured = {key: excerpt(value) for key, value in match.groupdict().items() if value is not None}
            sign = Sign(name, process, excerpt(text), 1, captured, self._ended(process))
            self._signs[name, process] = sign
            self.evidence.signs.append(sign)
        return bool(found)

    def _ended(self, process: int | None) -> bool:
        members = self.evidence.processes[process].members if process is not None else []
        return bool(members) and all(member.gone for member in members)

    def _refused_late(self, number: int, event: lines.GaveUp) -> bool:
        """Whether a program uses what it has torn down: a sign of its shutdown, not a failure of traffic.

        NCCL joins its threads before it reports a communicator as destroyed (init.cc, commFree), so none of them can give up
        afterwards: their traces, and other codes, belong to another run.
        """
        return event.code == INVALID_ARGUMENT and event.called and number in self._late and self._ended(number)

    @staticmethod
    def _set(settings: dict[str, str], name: str, value: str) -> None:
        if name in settings or len(settings) < MOST_SETTINGS:
            settings[name] = value[:MOST_SHOWN]

    # --- communicators ----------------------------------------------------------------------------------------------

    def _link(self, process: Process, thread: _Thread, link: lines.Link) -> None:
        key = link_key(link)
        other_rank = thread.pending and thread.pending[0].own != link.own
        if other_rank or key in thread.keys or len(thread.pending) >= MOST_PENDING:
            self._settle(process, thread)
        thread.pending.append(link)
        thread.keys.add(key)

    def _settle(self, process: Process, thread: _Thread) -> Member | None:
        """Assign a thread's waiting channels to one communicator; return it."""
        waiting = thread.pending
        if not waiting:
            return None
        thread.pending, thread.keys = [], set()
        fitting = [m for m in process.members if all(m.fits(link) for link in waiting)]
        chosen = _choose(fitting, thread, waiting)
        for link in waiting:
            owner = chosen or next((m for m in process.members if m.fits(link)), None)
            if owner is None:
                process.loose[link_key(link)] = link
            else:
                process.headless |= link_key(link) in owner.links  # NCCL prints each once
                owner.add(link)
        thread.linked = chosen
        return chosen

    def _member(self, process: Process, thread: _Thread, comm: str) -> Member | None:
        """Return the newest communicator with that address, and make it the thread's."""
        found = next((m for m in reversed(process.members) if m.comm == comm), None)
        if found is not None:
            thread.member = found
        return found

    def _started(self, process: Process, thread: _Thread, event: lines.Started) -> None:
        self._goes_on(process, thread)
        parent = self._member(process, thread, event.parent) if event.parent else None
        place = process.members.index(parent) if parent else None
        child = None
        if event.parent:
            count = event.count
            if count is None:  # older versions do not state it: count the children of this parent and color here
                count = sum(
                    m.parent == place and (m.child or "").endswith(f"color {event.color}") for m in process.members
                )
            child = f"child {count} color {event.color}"
        member = Member(event.comm, event.rank, event.nranks, event.comm_id, place, child, started=True)
        process.members.append(member)
        thread.member = member

    def _stepped(self, process: Process, thread: _Thread, event: lines.Step) -> None:
        self._goes_on(process, thread)
        member = self._known(process, thread, event.comm, event.rank, event.nranks)
        if event.comm_id and member.comm_id and event.comm_id != member.comm_id:
            process.headless = True  # another one, at the same address in memory
        if event.step == "complete":
            member.complete = True
        else:
            member.gone = event.step

    def _nodes(self, process: Process, thread: _Thread, event: lines.Nodes) -> None:
        member = self._known(process, thread, event.comm, event.rank, event.nranks)
        member.nodes, member.local_ranks = event.nodes, event.local_ranks

    def _known(self, process: Process, thread: _Thread, comm: str, rank: int, nranks: int) -> Member:
        member = self._member(process, thread, comm)
        if member is None or (member.rank, member.nranks) != (rank, nranks):
            member = Member(comm, rank, nranks)
            process.members.append(member)
            thread.member = member
        return member

    def _goes_on(self, process: Process, thread: _Thread) -> None:
        self._settle(process, thread)
        thread.linked = None
        for member in process.members:
            member.goes_on = True

    def _made(self, process: Process, thread: _Thread) -> Member | None:
        """Return the communicator that the thread is creating."""
        if thread.member is None or thread.member.complete:
            process.headless = True
            return None
        return thread.member

    def _ring_order(self, process: Process, thread: _Thread, event: lines.RingOrder) -> None:
        if member := self._made(process, thread):
            member.rings[event.channel] = event.order
            member.channels = max(member.channels or 0, event.total)

    def _ring_hop(self, process: Process, thread: _Thread, event: lines.RingHop) -> None:
        if (member := self._made(process, thread)) and member.rank == event.rank:
            member.hops[event.channel] = (event.before, event.after)

    def _trees(self, process: Process, thread: _Thread, event: lines.Trees) -> None:
        member = self._made(process, thread)
        for channel, rank, up, downs in event.trees:
            if member and member.rank == rank:
                member.trees[channel] = (*([] if up is None else [up]), *downs)

    def _channels(self, process: Process, thread: _Thread, event: lines.Channels) -> None:
        if member := self._made(process, thread):
            member.channels = max(member.channels or 0, event.collective)
            member.per_peer, member.most = event.per_peer, event.most

    def _connected(self, process: Process, thread: _Thread, event: lines.Connected) -> None:
        settled = self._settle(process, thread) or thread.linked
        member = thread.member
        if member is None or member.complete:
            # Nothing is being created here: the line belongs to the channels just seen, or to the only communicator.
            live = [m for m in process.members if m.gone is None and m.nranks > 1]
            member = settled or (live[0] if len(live) == 1 else None)
        if member is not None:
            member.connected.add(event.what)
        process.headless |= not process.members
        thread.linked = None

    # --- the process ------------------------------------------------------------------------------------------------

    def _devices(self, process: Process, thread: _Thread, event: lines.Devices) -> None:
        process.devices[event.network] = event.devices
        process.oob = event.oob or process.oob

    def _chosen(self, process: Process, thread: _Thread, event: lines.Chosen) -> None:
        if event.how == "using":
            process.network = event.name
        elif event.how == "plugin":
            process.plugin = event.name
        else:
            process.no_device = True

    def _not_opened(self, process: Process, thread: _Thread, event: lines.NotOpened) -> None:
        if event.hca not in process.not_opened and len(process.not_opened) < MOST_SETTINGS:
            process.not_opened.append(event.hca)

    def _setting(self, process: Process, thread: _Thread, event: lines.Setting) -> None:
        self._set(process.settings, event.name, event.value)

    def _version(self, process: Process, thread: _Thread, event: lines.Version) -> None:
        process.version = event.version
        self.evidence.versions.add(event.version)

    def _gid(self, process: Process, thread: _Thread, event: lines.LocalGid) -> None:
        if event not in process.gids and len(process.gids) < MOST_SETTINGS:
            process.gids.append(event)

    def _fused(self, process: Process, thread: _Thread, event: lines.Fused) -> None:
        process.fused[event.index] = event.name


_HANDLERS: dict[type, t.Callable[[Reader, Process, _Thread, t.Any], None]] = {
    lines.Started: Reader._started,
    lines.Step: Reader._stepped,
    lines.Nodes: Reader._nodes,
    lines.RingOrder: Reader._ring_order,
    lines.RingHop: Reader._ring_hop,
    lines.Trees: Reader._trees,
    lines.Channels: Reader._channels,
    lines.Connected: Reader._connected,
    lines.Devices: Reader._devices,
    lines.Fused: Reader._fused,
    lines.LocalGid: Reader._gid,
    lines.Chosen: Reader._chosen,
    lines.NotOpened: Reader._not_opened,
    lines.Setting: Reader._setting,
    lines.Version: Reader._version,
}
_ASSIGNED = re.compile(r"(?:^|[\s;,])(?:export )?(NCCL_[A-Z0-9_]+)=([^\s;]*)")
_CHANNEL = re.compile(r"(?:Channel|Ring) \d+(?:/\d+)? : \d+")


def _choose(fitting: list[Member], thread: _Thread, waiting: list[lines.Link]) -> Member | None:
    """Choose the communicator of some channels: the one being created; else one that lacks them, preferring the thread's."""
    if thread.member in fitting and thread.member is not None and not thread.member.complete:
        return thread.member
    fresh = [m for m in fitting if not any(link_key(link) in m.links for link in waiting)]
    if any(link.network for link in waiting):
        fresh = [m for m in fresh if m.nodes != 1] or fresh
    most = max(link.channel for link in waiting) + 1
    full = [m for m in fresh if m.channels == most] or fresh
    for candidates in (full, fitting):
        if thread.member in candidates:
            return thread.member
        if candidates:
            return candidates[0]
    return None
