# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The grammar of NCCL's log lines, 2.20 to 2.30 (and what older ones share with them): text in, small values out.

The forms are those of NCCL's own source (src/init.cc, src/transport/*.cc, src/graph/*.cc, src/debug.cc). A line may
carry prefixes of launchers (`0: `, `[1,0]<stdout>:`, `(pid=…, ip=…) `, `[pod/…] `) and timestamps; NCCL's own header
`host:pid:tid [gpu] NCCL INFO` may be anywhere in it, and more than once if several ranks wrote into one line.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
from dataclasses import dataclass

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_REPEATED = re.compile(r"\[repeated \d+x across (?:all )?cluster\]")  # Ray deduplicates lines
_HEADLESS = re.compile(r"NCCL (INFO|WARN) ")
# A host's name is matched only from its first character, and every part has a maximum length: a line without a header takes
# linear time, whatever it contains.
HEADER = re.compile(
    r"(?P<host>(?<![^\s:\[\]<>()])[^\s:\[\]<>()]+|<[^\s:<>]+>):(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) "
    r"(?:\[(?P<gpu>-?\d{1,4})\] )?(?:[\w./-]{1,300}:\d{1,6} (?:\([^()]{0,200}\) )?)?NCCL (?P<level>INFO|WARN|VERSION) ?"
)
LONGEST_MESSAGE = 4096  # characters; the rest is read as lines without a header
_OVERLAP = 512  # characters that consecutive pieces of a long line share


NOWHERE = "(nowhere)"  # the host of lines whose host and process have been removed


@dataclass(frozen=True, slots=True)
class Line:
    """One message. host is None without NCCL's header; level is then empty."""

    text: str
    host: str | None = None
    pid: int = 0
    tid: int = 0
    level: str = ""


@dataclass(frozen=True, slots=True)
class Begun:
    """NCCL begins in a process. Each of the two lines appears once in its life: `bootstrap`, `driver`."""

    how: str


@dataclass(frozen=True, slots=True)
class Started:
    """A rank begins to create a communicator.

    parent, count, color: it is split off another one, as the count-th child (if the version states it), for those of
    one color; from 2.23 on it then has no commId.
    """

    comm: str
    rank: int
    nranks: int
    comm_id: str | None
    parent: str | None
    count: int | None
    color: int | None


@dataclass(frozen=True, slots=True)
class Step:
    """A rank's communicator has reached a step: `complete`, `destroyed` or `aborted`. comm_id: if the line has it."""

    comm: str
    rank: int
    nranks: int
    step: str
    comm_id: str | None = None


@dataclass(frozen=True, slots=True)
class Nodes:
    """The extent of a rank's communicator."""

    comm: str
    rank: int
    nranks: int
    nodes: int
    local_ranks: int


@dataclass(frozen=True, slots=True)
class Link:
    """One channel between two ranks, as one side reports it.

    direction: `send`, `receive`, or None if only the sending side prints a line (P2P, SHM). network: the network's
    name (`IB`, `Socket`, …), None inside a node. inside: `P2P/CUMEM`, `SHM/direct/direct` …, None over a network.
    device: NCCL's number of the network device. proxy: the rank whose NIC sends (PXN).
    """

    channel: int
    conn: int
    src: int
    dst: int
    direction: str | None
    network: str | None
    inside: str | None
    device: int | None
    proxy: int | None
    gdr: bool

    @property
    def own(self) -> int:
        """The rank that printed the line."""
        return self.dst if self.direction == "receive" else self.src


@dataclass(frozen=True, slots=True)
class RingOrder:
    """Rank 0 reports the order in which a channel's ring visits the ranks; total: the number of channels."""

    channel: int
    total: int
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RingHop:
    """A rank's own neighbours on a channel's ring (subsystem GRAPH)."""

    channel: int
    before: int
    rank: int
    after: int


@dataclass(frozen=True, slots=True)
class Trees:
    """A rank's tree on each channel: (channel, rank, up, (down …)); absent neighbours are omitted."""

    trees: tuple[tuple[int, int, int | None, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Channels:
    """The number of channels of a communicator: for collectives, for send and receive with one peer, the maximum of any kind."""

    collective: int
    per_peer: int | None
    most: int


@dataclass(frozen=True, slots=True)
class Connected:
    """A set of channels is connected: `rings`, `trees`, `NVLS tree` …"""

    what: str


@dataclass(frozen=True, slots=True)
class Device:
    """One or several fused ports: (HCA or interface, port, `RoCE`, `IB` or `TCP`) of each."""

    ports: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True, slots=True)
class Devices:
    """The list of a network's devices in order; oob: the interface for non-RDMA traffic."""

    network: str
    devices: tuple[Device, ...]
    oob: str | None


@dataclass(frozen=True, slots=True)
class Fused:
    """A device that NCCL made of several (`name` joins theirs with `+`)."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class LocalGid:
    """The GID that a queue pair uses. device: number in NCCL's list, or hca: its name. mtu in bytes."""

    device: int | None
    hca: str | None
    port: int
    index: int
    gid: str
    mtu: int | None


@dataclass(frozen=True, slots=True)
class Chosen:
    """A message about the network in use: `using`, `assigned`, `plugin`; or `none` (no device found)."""

    how: str
    name: str


@dataclass(frozen=True, slots=True)
class Setting:
    """An environment variable that NCCL reports as read."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Version:
    """NCCL's version, such as 2.28.9."""

    version: str


@dataclass(frozen=True, slots=True)
class NotOpened:
    """A listed RDMA device cannot be opened: no device node, no permission, or another pod's."""

    hca: str


@dataclass(frozen=True, slots=True)
class GaveUp:
    """An NCCL API call, or one of its threads, failed with a code (ncclResult_t; CUDA's if above 7).

    called: whether it may have been an API call.
    """

    where: str
    code: int
    called: bool = True


Event = t.Union[  # noqa: UP007  (sanity's pylint does not know that classes can be joined)
    Begun,
    Started,
    Step,
    Nodes,
    Link,
    RingOrder,
    RingHop,
    Trees,
    Channels,
    Connected,
    Devices,
    Fused,
    LocalGid,
    Chosen,
    Setting,
    Version,
    NotOpened,
    GaveUp,
]

_INIT = re.compile(
    r"comm (?P<comm>0x[0-9a-f]+) rank (?P<rank>\d+) nranks (?P<nranks>\d+) (?P<rest>.*?) ?- "
    r"(?P<step>Init START|Init COMPLETE|Destroy COMPLETE|Abort COMPLETE)"
)
_ID = re.compile(r"\bcommId (0x[0-9a-f]+)")
_PARENT = re.compile(r"\bparent (0x[0-9a-f]+) (?:\w+Count (?P<count>\d+) )?color (?P<color>-?\d+)")
_NODES = re.compile(
    r"comm (?P<comm>0x[0-9a-f]+) rank (?P<rank>\d+) nRanks (?P<nranks>\d+) nNodes (?P<nodes>\d+) "
    r"localRanks (?P<local>\d+) localRank \d+"
)
_LINK = re.compile(
    r"(?:Channel|Ring) (?P<channel>\d+)(?:/(?P<conn>\d+))? : (?P<src>\d+)(?:\[\w+\])? -> (?P<dst>\d+)(?:\[\w+\])? "
    r"(?:\[(?P<direction>send|receive)\] )?via "
    r"(?:NET/(?P<network>.+?)/(?P<device>\d+)(?:\((?P<proxy>\d+)\))?(?P<gdr>/GDRDMA(?:\(PCI\))?)?(?:/Shared)?"
    r"|(?P<inside>(?:P2P|SHM|direct)\b.*?))$"
)
_ORDER = re.compile(r"Channel (\d+)/(\d+) ?: +(\d+(?: +\d+)*)$")
_HOP = re.compile(r"Ring (\d+) : (\d+) -> (\d+) -> (\d+)$")
_TREE = re.compile(r"\[(\d+)\] (-?\d+(?:/-?\d+)*)->(\d+)->(-?\d+)")
_COUNT = re.compile(r"(\d+) coll channels, .*?(?:(\d+) p2p channels per peer)?$")
_NUMBER = re.compile(r"\b\d{1,9}\b")
_CONNECTED = re.compile(r"Connected (all rings|all trees|NVLS tree|binomial trees|collnet \+ chain)")
_OOB = re.compile(r"([^\s:]+):")
_DEVICE = re.compile(r"\[\d+\]=\{(?P<fused>[^}]*)\}|\[\d+\] ?(?P<one>[^\s;,]+)")
_PORT = re.compile(r"(?:\[\d+\] ?)?(?P<hca>[^\s:/\[\]]+):(?P<port>\d+)(?::\d*)*/(?P<link>\w+)")
_FUSED = re.compile(r"Made virtual device \[(\d+)\] name=(\S+)")
_QP = re.compile(
    r"IbDev (\d+) Port (\d+) qp(?:n|_num) \d+ mtu (\d+)(?: query_ece=\{[^}]*\})? "
    r"GID (-?\d+) \(([0-9A-Fa-f]+)/([0-9A-Fa-f]+)\)"
)
_QP_FAILED = re.compile(
    r"ibv_modify_qp failed .{0,300}? on dev ([^\s:]+):(\d+), .{0,300}?local GID index (-?\d+), local GID ([^\s,]+)"
)
_USING = re.compile(r"(?:Using network|Assigned NET plugin) (.+?)(?: to comm)?$")
_PLUGIN = re.compile(r"(?:Loaded net plugin|Successfully loaded external network plugin) (.+?)(?: \(v\d+\))?$")
_NO_DEVICE = re.compile(r"NET/(\w+) ?: No device found")
_SETTING = re.compile(r"(NCCL_[A-Z0-9_]+) set (?:by environment )?to (.*?)\.?$")
_RESET = re.compile(r"Comm config \w+ reset to (NCCL_[A-Z0-9_]+)=(.*)$")
_VERSION = re.compile(r"NCCL version (\d+\.\d+(?:\.\d+)?)")
_BOOTSTRAP = re.compile(r"Bootstrap ?: Using ?[^\s:]+:\S*<\d+>")
_NOT_OPENED = re.compile(r"NET/\w+ ?: Unable to open device (\S+)")
# Each matches the last line of a trace: what NCCL's caller gets, or what stops one of its threads (proxy, network). Traces of
# things that NCCL tries but can do without, such as a missing network, never get this far.
_GAVE_UP = re.compile(
    r"(?:\S*/)?((?:init|group|enqueue|bootstrap|proxy|transport/net)\.cc:\d+)(?: \([^)]*\))? -> ([1-6])\b"
)
_THREAD = re.compile(r"(\S+\.cc:\d+)(?: \([^)]*\))? -> ([1-9]\d{0,3}) \[[^\]]*[Tt]hread\]")
_MTU = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}  # enum ibv_mtu


def split(raw: str) -> list[Line]:
    """Split one line of a file: remove colours and prefixes, and return a Line for each header and each carriage return."""
    text = raw.rstrip()
    if "\x1b" in text:
        text = _ANSI.sub("", text).rstrip()
    if not text:
        return []
    if "\r" in text:  # a progress bar, which rewrites its line
        return [line for part in text.split("\r") for line in split(part)]
    if "NCCL" not in text:
        return _pieces(text)
    place = text.rfind("[repeated ")
    if place >= 0 and _REPEATED.match(text, place):
        text = text[:place].rstrip()
    first = HEADER.search(text)
    if first is None:
        said = _HEADLESS.search(text)
        return _cut(Line(text[said.end() :], NOWHERE, level=said[1])) if said else _pieces(text)
    found = [first]
    if text.find("NCCL INFO", first.end()) >= 0 or text.find("NCCL WARN", first.end()) >= 0:
        found = list(HEADER.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    return [
        line
        for m, end in zip(found, ends, strict=True)
        for line in _cut(Line(text[m.end() : end].rstrip(), m["host"], int(m["pid"]), int(m["tid"]), m["level"]))
    ]


def _cut(line: Line) -> list[Line]:
    """Return a message, and the text beyond a message's maximum length: an engine's own, with no newline between."""
    if len(line.text) <= LONGEST_MESSAGE:
        return [line]
    rest = line.text[LONGEST_MESSAGE - _OVERLAP :]
    return [dataclasses.replace(line, text=line.text[:LONGEST_MESSAGE]), *_pieces(rest)]


def _pieces(text: str) -> list[Line]:
    """Return a text without a header, split into overlapping pieces if it is long."""
    step = LONGEST_MESSAGE - _OVERLAP
    return [Line(text[start : start + LONGEST_MESSAGE]) for start in range(0, max(1, len(text) - _OVERLAP), step)]


def gid_text(prefix: int, interface: int) -> str:
    """Format a GID from the two 64-bit numbers that NCCL prints: network byte order, read on a little-endian CPU."""
    from ipaddress import IPv6Address

    address = IPv6Address(prefix.to_bytes(8, "little") + interface.to_bytes(8, "little"))
    return f"::ffff:{address.ipv4_mapped}" if address.ipv4_mapped else str(address)


def parse(text: str) -> Event | None:
    """Return the event of a message, None if it is not relevant."""
    first = text[:8]
    if first.startswith(("Channel ", "Ring ")):
        return _parse_channel(text)
    for start, parser in _BY_START:
        if text.startswith(start):
            return parser(text)
    if "- " in text and "comm 0x" in text:
        return _parse_init(text)
    if "GID" in text:
        return _parse_gid(text)
    if " coll channels, " in text and (match := _COUNT.match(text)):
        most = max(map(int, _NUMBER.findall(text)))
        return Channels(int(match[1]), int(match[2]) if match[2] else None, most)
    if ".cc:" in text and (match := _GAVE_UP.match(text) or _THREAD.match(text)):
        called = match[1].startswith(("init", "group", "enqueue")) and "hread]" not in text
        return GaveUp(match[1], int(match[2]), called)
    return None


def _parse_channel(text: str) -> Event | None:
    if match := _LINK.match(text):
        return Link(
            int(match["channel"]),
            int(match["conn"] or 0),
            int(match["src"]),
            int(match["dst"]),
            match["direction"],
            match["network"],
            match["inside"],
            int(match["device"]) if match["device"] else None,
            int(match["proxy"]) if match["proxy"] else None,
            bool(match["gdr"]),
        )
    if match := _ORDER.match(text):
        return RingOrder(int(match[1]), int(match[2]), tuple(map(int, match[3].split())))
    if match := _HOP.match(text):
        return RingHop(*map(int, match.groups()))
    return None


def _parse_init(text: str) -> Event | None:
    match = _INIT.search(text)
    if not match:
        return None
    rank, nranks = int(match["rank"]), int(match["nranks"])
    known = _ID.search(match["rest"])
    if match["step"] == "Init START":
        parent = _PARENT.search(match["rest"])
        return Started(
            match["comm"],
            rank,
            nranks,
            known[1] if known else None,
            parent[1] if parent else None,
            int(parent["count"]) if parent and parent["count"] else None,
            int(parent["color"]) if parent else None,
        )
    step = {"Init COMPLETE": "complete", "Destroy COMPLETE": "destroyed", "Abort COMPLETE": "aborted"}[match["step"]]
    return Step(match["comm"], rank, nranks, step, known[1] if known else None)


def _parse_comm(text: str) -> Event | None:
    if match := _NODES.match(text):
        return Nodes(match["comm"], int(match["rank"]), int(match["nranks"]), int(match["nodes"]), int(match["local"]))
    return _parse_init(text)


def _parse_trees(text: str) -> Event | None:
    trees = []
    for match in _TREE.finditer(text):
        downs = tuple(int(each) for each in match[2].split("/") if int(each) >= 0)
        trees.append((int(match[1]), int(match[3]), int(match[4]) if int(match[4]) >= 0 else None, downs))
    return Trees(tuple(trees)) if trees else None


def _parse_connected(text: str) -> Event | None:
    match = _CONNECTED.match(text)
    return Connected(match[1].removeprefix("all ")) if match else None


def _parse_net(text: str) -> Event | None:
    if match := _NO_DEVICE.match(text):
        return Chosen("none", match[1])
    if match := _FUSED.search(text):
        return Fused(int(match[1]), match[2])
    if match := _NOT_OPENED.match(text):
        return NotOpened(match[1])
    if "GID" in text:
        return _parse_gid(text)
    name, using, rest = text.removeprefix("NET/").partition(": Using")
    listed, _semicolon, oob = rest.partition("; OOB ")
    listed = listed.rstrip().removesuffix("[RO]").strip()
    if not using or not name.strip() or (listed and "[" not in listed):
        return None
    devices = []
    for each in _DEVICE.finditer(listed):
        ports = tuple((p["hca"], int(p["port"]), p["link"]) for p in _PORT.finditer(each["fused"] or each["one"]))
        if not ports and each["one"]:
            ports = ((each["one"].split(":")[0], 0, "TCP"),)  # an interface with its address
        devices.append(Device(ports))
    interface = _OOB.match(oob)
    return Devices(name.strip(), tuple(devices), interface[1] if interface else None)


def _parse_gid(text: str) -> Event | None:
    if match := _QP.search(text):
        device, port, mtu, index = (int(match[i]) for i in (1, 2, 3, 4))
        return LocalGid(device, None, port, index, gid_text(int(match[5], 16), int(match[6], 16)), _MTU.get(mtu))
    if match := _QP_FAILED.search(text):
        return LocalGid(None, match[1], int(match[2]), int(match[3]), match[4], None)
    return None


def _parse_setting(text: str) -> Event | None:
    if match := _SETTING.match(text):
        return Setting(match[1], match[2])
    match = _VERSION.match(text)
    return Version(match[1]) if match else None


def _parse_reset(text: str) -> Event | None:
    match = _RESET.match(text)
    return Setting(match[1], match[2]) if match else None


def _parse_using(text: str) -> Event | None:
    match = _USING.match(text)
    return Chosen("using", match[1]) if match else None


def _parse_bootstrap(text: str) -> Event | None:
    return Begun("bootstrap") if _BOOTSTRAP.match(text) else None


def _parse_driver(text: str) -> Event | None:
    return Begun("driver")


def _parse_plugin(text: str) -> Event | None:
    match = _PLUGIN.search(text)
    return Chosen("plugin", match[1]) if match else None


_BY_START: tuple[tuple[str, t.Callable[[str], Event | None]], ...] = (
    ("comm 0x", _parse_comm),
    ("NET/Plugin", _parse_plugin),
    ("NET/", _parse_net),
    ("Trees ", _parse_trees),
    ("Connected ", _parse_connected),
    ("NCCL", _parse_setting),
    ("Bootstrap", _parse_bootstrap),
    ("cudaDriverVersion ", _parse_driver),
    ("Comm config ", _parse_reset),
    ("Using network ", _parse_using),
    ("Assigned NET plugin ", _parse_using),
    ("Successfully loaded external network plugin ", _parse_plugin),
)
