"""Constructed NCCL logs: what no machine here can run (RoCE, plugins, GPUDirect, PXN), in the shapes of NCCL's source.

Every log made here is constructed, by version: 2.20 and 2.21 connect channels while a communicator starts, later ones
at first use. Nothing of it was captured.
"""

from __future__ import annotations

import dataclasses
import json
import random
import typing as t
from dataclasses import dataclass, field

Logs = list[list[str]]  # rank -> lines
RAILS = (("rocep1s0f0", 1, "RoCE"), ("roceP2p1s0f0", 1, "RoCE"))


@dataclass(frozen=True)
class Job:
    """A run: its ranks, its network, and the communicators besides the world's (lists of ranks; `split` off the world).

    fused: the HCAs are one device. proxy: with PXN, the rank whose NIC is used for another. hangs: nothing is connected.
    """

    version: str = "2.28.9"
    nodes: int = 2
    per_node: int = 1
    channels: int = 2
    network: str = "IB"
    hcas: tuple[tuple[str, int, str], ...] = RAILS[:1]
    fused: bool = False
    gdr: bool = False
    pxn: bool = False
    groups: tuple[tuple[int, ...], ...] = ()
    split: bool = False
    group_network: str | None = None
    pipeline: bool = False
    plugin: str | None = None
    gids: bool = False
    destroyed: bool = False
    settings: tuple[tuple[str, str], ...] = ()
    oob: str = "enp1s0f0v0"
    seed: int = 0

    @property
    def ranks(self) -> int:
        return self.nodes * self.per_node

    @property
    def eager(self) -> bool:
        return self.number < (2, 22)

    @property
    def number(self) -> tuple[int, ...]:
        return tuple(map(int, self.version.split(".")))


@dataclass
class _Rank:
    job: Job
    rank: int
    lines: list[str] = field(default_factory=list)
    tid: int = 0

    def say(self, text: str) -> None:
        job, rank = self.job, self.rank
        pid = 4000 + job.seed % 1000 + rank * 7
        self.lines.append(
            f"spark{rank // job.per_node + 1}:{pid}:{self.tid or pid} [{rank % job.per_node}] NCCL INFO {text}"
        )


def build(job: Job) -> Logs:
    """Return the log of each rank of a good run."""
    ranks = [_Rank(job, rank) for rank in range(job.ranks)]
    for rank in ranks:
        _prelude(rank)
    world = tuple(range(job.ranks))
    chance = random.Random(job.seed)
    ids = [f"0x{chance.getrandbits(64):x}" for _turn in range(len(job.groups) + 1)]
    everything = [(world, job.network, ids[0], 0)]
    everything += [(g, job.group_network or job.network, ids[n + 1], n + 1) for n, g in enumerate(job.groups)]
    for members, network, comm_id, place in everything:
        for rank in ranks:
            if rank.rank in members:
                _communicator(rank, members, network, comm_id, place)
    if job.destroyed:
        for rank in ranks:
            for members, _network, _id, place in everything:
                if rank.rank in members:
                    own = f"comm {_pointer(rank, place)} rank {members.index(rank.rank)} nranks {len(members)}"
                    rank.say(f"{own} cudaDev 0 busId 60 - Destroy COMPLETE")
    return [rank.lines for rank in ranks]


def _prelude(rank: _Rank) -> None:
    job = rank.job
    rank.say(f"Bootstrap{' ' if job.eager else ''}: Using {job.oob}:198.51.100.{rank.rank + 1}<0>")
    rank.say("cudaDriverVersion 13000")
    rank.say(f"NCCL version {job.version}+cuda13.0")
    for name, value in job.settings:
        rank.say(f"{name} set by environment to {value}{'.' if value.isdigit() else ''}")
    if job.plugin:
        if job.number >= (2, 28):
            rank.say(f"Successfully loaded external network plugin {job.plugin}")
        else:
            rank.say(f"NET/Plugin: Loaded net plugin {job.plugin} (v8)")
    if job.network == "Socket":
        rank.say("NET/IB : No device found.")
        if not job.eager:
            rank.say(f"NET/IB : Using [RO]; OOB {job.oob}:198.51.100.{rank.rank + 1}<0>")
        rank.say(f"NET/Socket : Using [0]{job.oob}:198.51.100.{rank.rank + 1}<0>")
    else:
        rank.say(f"NET/IB : Using {_devices(job)} [RO]; OOB {job.oob}:198.51.100.{rank.rank + 1}<0>")
        if job.fused and job.number >= (2, 24):
            name = "+".join(hca for hca, _port, _link in job.hcas)
            rank.say(f"NET/IB : Made virtual device [{len(job.hcas)}] name={name} speed=400000 ndevs={len(job.hcas)}")
    if job.number >= (2, 28):
        rank.say(f"Initialized NET plugin {job.network}")
        rank.say(f"Assigned NET plugin {job.network} to comm")
    rank.say(f"Using network {job.network}")


def _devices(job: Job) -> str:
    if job.fused and job.number < (2, 24):
        return "[0]={" + ", ".join(f"[{i}] {h}:{p}/{k}" for i, (h, p, k) in enumerate(job.hcas)) + "}"
    return " ".join(f"[{i}]{h}:{p}/{k}" for i, (h, p, k) in enumerate(job.hcas))


def _pointer(rank: _Rank, place: int) -> str:
    return f"0x{0x5500000 + rank.rank * 0x1000 + place * 0x10:x}"


def _communicator(rank: _Rank, members: tuple[int, ...], network: str, comm_id: str, place: int) -> None:
    job = rank.job
    pid = 4000 + job.seed % 1000 + rank.rank * 7
    rank.tid = pid + 100 + place if job.eager else pid
    own, size = members.index(rank.rank), len(members)
    pointer = _pointer(rank, place)
    nodes = len({each // job.per_node for each in members})
    local = sum(each // job.per_node == rank.rank // job.per_node for each in members)
    head = f"comm {pointer} rank {own} nranks {size} cudaDev 0 nvmlDev 0 busId 60"
    split = job.split and place > 0
    if job.number >= (2, 21):
        head = ("ncclCommSplit " if split else "ncclCommInitRankConfig ") + head
    ident = f"commId {comm_id}"
    color = 1000 + min(members)
    if split and job.number >= (2, 23):
        count = f"splitCount {place} " if (2, 25) < job.number < (2, 30) else ""
        count = f"childCount {place} " if job.number >= (2, 30) else count
        ident = f"parent {_pointer(rank, 0)} {count}color {color} key {own}"
    start = f"[Rank {own}] {head}" if job.number >= (2, 30) and not split else head
    rank.say(f"{start} {ident}{'-' if 'color' in ident else ' -'} Init START")
    rank.say(f"comm {pointer} rank {own} nRanks {size} nNodes {nodes} localRanks {local} localRank 0 MNNVL 0")
    gap = "   " if job.eager else " "
    if own == 0:
        for channel in range(job.channels):
            rank.say(f"Channel {channel:02d}/{job.channels:02d} :{gap}" + gap.join(map(str, range(size))))
    trees = []
    for channel in range(job.channels):
        up, down = (own - 1, own + 1) if channel % 2 == 0 else (own + 1, own - 1)
        up, down = (each if 0 <= each < size else -1 for each in (up, down))
        trees.append(f"[{channel}] {down}/-1/-1->{own}->{up}")
    rank.say("Trees " + " ".join(trees))
    rank.say("P2P Chunksize set to 131072")
    count_line = (
        f"{job.channels} coll channels, 0 collnet channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per peer"
    )
    done = f"{head} {ident} - Init COMPLETE"
    if not job.eager:
        rank.say(count_line)
        rank.say(done)
    seen: set[str] = set()
    if job.pipeline and place == 0:
        _pipeline(rank, members, network)
    else:
        for channel in range(job.channels):
            _link(rank, members, network, channel, (own - 1) % size, own, True, seen)
        for channel in range(job.channels):
            _link(rank, members, network, channel, own, (own + 1) % size, False, seen)
        if job.gids:
            _queue_pairs(rank)
        rank.say("Connected all rings" + ("" if job.eager else f", use ring PXN {int(job.pxn)} GDR {int(job.gdr)}"))
    if job.eager:
        for channel in range(job.channels):
            for other in (own - 1, own + 1):
                if 0 <= other < size:
                    _link(rank, members, network, channel, other, own, True, seen)
                    _link(rank, members, network, channel, own, other, False, seen)
        rank.say("Connected all trees")
        rank.say(count_line)
        rank.say(done)


def _pipeline(rank: _Rank, members: tuple[int, ...], network: str) -> None:
    own, size = members.index(rank.rank), len(members)
    for src, dst in (((own - 1) % size, own), (own, (own + 1) % size)):
        for channel in range(2):
            way = "receive" if dst == own else "send"
            rank.say(f"Channel {channel:02d}/1 : {src}[0] -> {dst}[0] [{way}] via NET/{network}/0/Shared")


def _link(
    rank: _Rank,
    members: tuple[int, ...],
    network: str,
    channel: int,
    src: int,
    dst: int,
    receives: bool,
    seen: set[str],
) -> None:
    job = rank.job
    inside = members[src] // job.per_node == members[dst] // job.per_node
    ends = f"{src}[{members[src] % job.per_node}] -> {dst}[{members[dst] % job.per_node}]"
    text = f"Channel {channel:02d}/0 : {ends}"
    if inside:
        text += " via P2P/CUMEM" if channel % 2 == 0 else " via P2P/CUMEM/read"
        if receives:
            return
    else:
        device = len(job.hcas) if job.fused and job.number >= (2, 24) else 0 if job.fused else channel % len(job.hcas)
        proxy = f"({src ^ 1})" if job.pxn and not receives and job.per_node > 1 and channel % 2 else ""
        text += (
            f" [{'receive' if receives else 'send'}] via NET/{network}/{device}{proxy}{'/GDRDMA' if job.gdr else ''}"
        )
    if text not in seen:
        seen.add(text)
        rank.say(text)


def _queue_pairs(rank: _Rank) -> None:
    """Log which GID each device uses: ::ffff:198.51.100.N at index 3."""
    address = bytes([0, 0, 0xFF, 0xFF, 198, 51, 100, rank.rank + 1])
    interface = int.from_bytes(address, "little")
    for number in range(len(rank.job.hcas)):
        rank.say(
            f"NET/IB: NCCL Dev {number} IbDev {number} Port 1 qpn 300 mtu 5 GID 3 (0/{interface:X}) "
            "fifoRkey=0x1 fifoLkey=0x2"
        )


GOOD: dict[str, Job] = {
    "roce-one-hca-2.20.5": Job("2.20.5"),
    "roce-two-hcas-2.21.5": Job("2.21.5", hcas=RAILS, channels=4),
    "roce-fused-2.22.3": Job("2.22.3", hcas=RAILS, fused=True),
    "roce-two-hcas-2.23.4": Job("2.23.4", nodes=4, hcas=RAILS, channels=4),
    "plugin-v8-2.24.3": Job("2.24.3", network="IBext_v8", plugin="IBext_v8", hcas=RAILS),
    "infiniband-2.25.1": Job("2.25.1", hcas=(("mlx5_0", 1, "IB"),), gdr=True),
    "roce-fused-2.26.2": Job("2.26.2", hcas=RAILS, fused=True),
    "plugin-with-spaces-2.27.7": Job("2.27.7", network="NCCL RDMA Plugin v10", plugin="NCCL RDMA Plugin v10"),
    "roce-four-nodes-2.28.9": Job("2.28.9", nodes=4, hcas=RAILS, channels=4, gids=True, destroyed=True),
    "gdr-pxn-2.28.9": Job("2.28.9", per_node=2, hcas=RAILS, gdr=True, pxn=True),
    "groups-2.28.9": Job("2.28.9", per_node=2, groups=((0, 1), (2, 3), (0, 2), (1, 3))),
    "split-2.29.7": Job("2.29.7", nodes=4, groups=((0, 1), (2, 3), (0, 2), (1, 3)), split=True, channels=2),
    "split-2.23.4": Job("2.23.4", nodes=4, groups=((0, 1), (2, 3)), split=True),
    "plugin-v11-2.30.7": Job("2.30.7", nodes=8, network="IBext_v11", plugin="IBext_v11", hcas=RAILS, channels=4),
    "pipeline-and-group-2.30.4": Job("2.30.4", groups=((0, 1),), destroyed=True, settings=(("NCCL_NVLS_ENABLE", "0"),)),
    "send-receive-2.28.9": Job("2.28.9", nodes=3, pipeline=True, destroyed=True),
}


@dataclass(frozen=True)
class Bad:
    """Logs that are not `ib`: the verdict, the first cause, and whether a shortened log must stay negative, too."""

    logs: Logs
    verdict: str
    cause: str
    short_stays_negative: bool = True


def _insert(logs: Logs, rank: int, before: str, *new: str) -> Logs:
    """Put lines into a rank's log before the first line with a text, and end the log there; other ranks' logs end likewise."""
    made = []
    for number, lines in enumerate(logs):
        place = next((i for i, line in enumerate(lines) if before in line), len(lines))
        head = lines[0].split("NCCL INFO")[0] if number != rank else logs[rank][0].split("NCCL INFO")[0]
        made.append(lines[:place] + ([head + text for text in new] if number == rank else []))
    return made


def _warn(text: str, place: str = "misc/ibvwrap.cc:202") -> list[str]:
    return [f"{place} NCCL WARN {text}", "NCCL INFO transport/net_ib.cc:1200 -> 2", "NCCL INFO group.cc:133 -> 2"]


def _qp(number: int, words: str, local: str) -> list[str]:
    return _warn(
        f"Call to ibv_modify_qp failed with {number} {words}, on dev rocep1s0f0:1, curr state INIT, next state RTR, "
        f"local GID index 3, local GID {local}, remote GID ::ffff:198.51.100.2"
    )


def _after(logs: Logs, rank: int, *new: str) -> Logs:
    head = logs[rank][0].split("NCCL INFO")[0]
    return [lines + ([head + text for text in new] if number == rank else []) for number, lines in enumerate(logs)]


def _replaced(logs: Logs, rank: int, old: str, new: str) -> Logs:
    return [[line.replace(old, new) if number == rank else line for line in lines] for number, lines in enumerate(logs)]


def bad() -> dict[str, Bad]:
    """Return all constructed negatives by name."""
    base = build(Job(seed=7))
    old = build(Job("2.20.5", seed=8))
    rings = "Connected all rings"
    mapped = "::ffff:198.51.100.1"
    tcp = Job(network="Socket", seed=9, oob="net1")
    mixed = build(Job(nodes=4, groups=((0, 1), (2, 3)), group_network="Socket", seed=10))
    one_tcp = [
        [line.replace("via NET/IB/", "via NET/Socket/") if "Channel 01/0" in line else line for line in lines]
        for lines in build(Job(seed=11))
    ]
    no_net = dataclasses.replace(tcp, seed=12)
    closed = [
        [
            *[line for line in lines if "Socket" not in line][:5],
            f"{lines[0].split('NCCL INFO')[0]}plugin/net.cc:379 NCCL WARN Failed to initialize any NET plugin",
            f"{lines[0].split('NCCL INFO')[0]}NCCL INFO init.cc:421 -> 5",
        ]
        for lines in build(no_net)
    ]
    hang = [lines[: next(i for i, x in enumerate(lines) if " via " in x)] for lines in build(Job(seed=13))]
    nvls = [lines[: next(i for i, x in enumerate(lines) if " via " in x)] for lines in build(Job("2.30.4", seed=14))]
    return {
        "gid-empty-2.28.9": Bad(
            _insert(base, 0, rings, *_qp(61, "No data available", "::")), "failed", "nccl.gid-empty"
        ),
        "gid-no-route-2.28.9": Bad(
            _insert(base, 1, rings, *_qp(101, "Network is unreachable", "fe80::1")), "failed", "nccl.gid-no-route"
        ),
        "rails-crossed-2.28.9": Bad(
            _insert(base, 0, rings, *_qp(110, "Connection timed out", mapped)), "failed", "nccl.qp-timeout"
        ),
        "vf-gone-2.28.9": Bad(
            _insert(base, 0, rings, *_qp(19, "No such device", mapped)), "failed", "nccl.qp-no-device"
        ),
        "gid-empty-2.20.5": Bad(
            _insert(old, 0, rings, *_warn("Call to ibv_modify_qp failed with error No data available errno 61")),
            "failed",
            "nccl.gid-empty",
        ),
        "gid-no-route-2.20.5": Bad(
            _insert(old, 1, rings, *_warn("Call to ibv_modify_qp failed with error Network is unreachable errno 101")),
            "failed",
            "nccl.gid-no-route",
        ),
        "memlock-2.20.5": Bad(
            _insert(old, 0, rings, *_warn("Call to ibv_create_cq failed with error Cannot allocate memory")),
            "failed",
            "nccl.memlock",
        ),
        "path-dead-2.28.9": Bad(
            _after(
                base,
                0,
                *_warn(
                    "NET/IB: Got completion from peer 198.51.100.2<4321> with status=IBV_WC_RETRY_EXC_ERR(12) opcode="
                    "IBV_WC_SEND(0) reqSize=0 vendor_err=129 req_type=Send localGid ::ffff:198.51.100.1 hca rocep1s0f0",
                    "transport/net_ib.cc:2543",
                ),
            ),
            "failed",
            "nccl.path-dead",
            False,
        ),
        "path-dead-2.20.5": Bad(
            _after(
                old,
                1,
                *_warn(
                    "NET/IB : Got completion from peer 198.51.100.1<4321> with status=12 opcode=0 len=0 vendor err 129 (Send)",
                    "transport/net_ib.cc:1996",
                ),
            ),
            "failed",
            "nccl.path-dead",
            False,
        ),
        "local-protection-2.28.9": Bad(
            _after(
                base,
                0,
                *_warn(
                    "NET/IB: Got completion from peer 198.51.100.2<4321> with status=IBV_WC_LOC_PROT_ERR(4) opcode="
                    "IBV_WC_SEND(0) reqSize=8 vendor_err=81 req_type=Send hca rocep1s0f0",
                    "transport/net_ib.cc:2543",
                ),
            ),
            "failed",
            "nccl.local-protection",
            False,
        ),
        "one-rank-tcp-2.28.9": Bad(
            _insert(
                _replaced(base, 1, "NET/IB/0", "NET/Socket/0"),
                0,
                rings,
                *_warn("socketFinalizeAccept from 198.51.100.2<50000>: wrong type 3 != 4", "misc/socket.cc:660"),
            ),
            "failed",
            "nccl.mixed-transports",
        ),
        "versions-2.28.9": Bad(
            _insert(
                base,
                0,
                "Channel 00/02",
                *_warn("Mismatched NCCL version detected : rank 0 version 22809 rank 1 version 22907", "init.cc:896"),
            ),
            "failed",
            "nccl.versions",
        ),
        "no-interface-2.20.5": Bad(
            _insert(old, 0, "cudaDriverVersion", *_warn("Bootstrap : no socket interface found", "bootstrap.cc:48")),
            "failed",
            "nccl.no-interface",
        ),
        "firewall-2.26.2": Bad(
            _insert(
                build(Job("2.26.2", seed=15)),
                1,
                "nRanks",
                *_warn(
                    "socketStartConnect: Connect to 198.51.100.1<45321> failed : No route to host", "misc/socket.cc:500"
                ),
            ),
            "failed",
            "nccl.unreachable",
        ),
        "nvml-2.20.5": Bad(
            _insert(old, 0, "NCCL version", *_warn("Failed to open libnvidia-ml.so.1", "misc/nvmlwrap.cc:90")),
            "failed",
            "nccl.nvml",
        ),
        "fail-closed-2.28.9": Bad(closed, "failed", "nccl.no-device-in-pod"),
        "no-device-in-pod-2.28.9": Bad(build(tcp), "socket", "nccl.no-device-in-pod"),
        "hca-is-netdev-2.28.9": Bad(
            [
                [lines[0], lines[0].split("NCCL INFO")[0] + "NCCL INFO NCCL_IB_HCA set to =enp1s0f0np0:1", *lines[1:]]
                for lines in build(dataclasses.replace(tcp, seed=16))
            ],
            "socket",
            "nccl.hca-is-netdev",
        ),
        "link-down-2.20.5": Bad(
            [
                [lines[0], lines[0].split("NCCL INFO")[0] + "NCCL INFO NCCL_IB_HCA set to mlx5_2", *lines[1:]]
                for lines in build(Job("2.20.5", network="Socket", seed=17))
            ],
            "socket",
            "nccl.hca-unusable",
        ),
        "plugin-glibc-2.26.2": Bad(
            [
                [
                    lines[0],
                    lines[0].split("NCCL INFO")[0]
                    + "NCCL INFO NET/Plugin: Could not open libnccl-net.so : libc.so.6: version `GLIBC_2.38' not found",
                    *(x for x in lines[1:] if "NET/IB" not in x),
                ]
                for lines in build(Job("2.26.2", network="Socket", seed=18))
            ],
            "socket",
            "nccl.plugin-glibc",
        ),
        "one-channel-tcp-2.28.9": Bad(one_tcp, "mixed", "nccl.not-all-rdma"),
        "one-group-tcp-2.28.9": Bad(mixed, "mixed", "nccl.not-all-rdma", False),
        "other-network-2.28.9": Bad(build(Job(network="AWS Libfabric", seed=19)), "unknown", "nccl.network-other"),
        "hang-2.28.9": Bad(hang, "unknown", "nccl.stalled"),
        "nvls-hang-2.30.4": Bad(nvls, "unknown", "nccl.known-bad.nccl-2.30.4-nvls"),
        "one-log-missing-2.28.9": Bad([build(Job(seed=20))[0]], "unknown", "nccl.ranks-missing"),
        "cut-2.20.5": Bad([lines[:-6] for lines in build(Job("2.20.5", seed=21))], "unknown", "nccl.log-truncated"),
        "two-versions": Bad(
            _replaced(build(Job(seed=22)), 1, "NCCL version 2.28.9", "NCCL version 2.29.7"),
            "unknown",
            "nccl.versions-differ",
        ),
    }


def joined(logs: Logs, chance: random.Random) -> list[str]:
    """Interleave the ranks' logs into one, each rank's lines in their order."""
    left = [list(reversed(lines)) for lines in logs]
    made = []
    while left:
        lines = chance.choice(left)
        if not lines:
            left.remove(lines)
            continue
        made.append(lines.pop())
    return made


LAUNCHERS: tuple[t.Callable[[int, random.Random], str], ...] = (
    lambda rank, chance: "",
    lambda rank, chance: f"{rank}: ",
    lambda rank, chance: f"[1,{rank}]<stdout>:",
    lambda rank, chance: f"[rank{rank}]: ",
    lambda rank, chance: f"[default{rank}]:",
    lambda rank, chance: f"(RayWorkerWrapper pid={9000 + rank}, ip=198.51.100.{rank + 1}) ",
    lambda rank, chance: f"\x1b[36m(RayWorkerWrapper pid={9000 + rank})\x1b[0m ",
    lambda rank, chance: f"[pod/sglang-{rank}/main] ",
    lambda rank, chance: f"2026-11-21T16:{chance.randrange(60):02d}:25.{chance.randrange(10**9):09d}Z ",
    lambda rank, chance: f"[2026-11-21 16:05:{chance.randrange(60):02d}] ",
    lambda rank, chance: f"2026-11-21T16:05:25.1Z stdout F [2026-11-21 16:05:{chance.randrange(60):02d}] ",
)
_TIME = "2026-11-21T16:05:25.123456789Z"


def _pieces(line: str, chance: random.Random) -> list[str]:
    """Split a line as runtimes split long ones: mostly not."""
    if len(line) < 2 or chance.random() < 0.8:
        return [line]
    place = chance.randrange(1, len(line))
    return [line[:place], line[place:]]


def cri(lines: list[str], chance: random.Random) -> list[str]:
    """Frame lines as containerd does; the pieces of a split line are tagged P, the last F."""
    made = []
    for line in lines:
        *parts, last = _pieces(line.rstrip(), chance)
        made += [f"{_TIME} stdout P {part}" for part in parts] + [f"{_TIME} stdout F {last}"]
    return made


def docker(lines: list[str], chance: random.Random) -> list[str]:
    """Frame lines as Docker's json-file does; only the last piece of a split line has the newline."""
    made = []
    for line in lines:
        *parts, last = _pieces(line.rstrip(), chance)
        made += [json.dumps({"log": part, "stream": "stdout", "time": _TIME}) for part in (*parts, f"{last}\n")]
    return made


def collector(lines: list[str], chance: random.Random) -> list[str]:
    """Frame lines as a log collector does."""
    return [json.dumps({"@timestamp": _TIME, "message": line.rstrip(), "kubernetes": {"pod": "x"}}) for line in lines]


FRAMES: tuple[t.Callable[[list[str], random.Random], list[str]], ...] = (cri, docker, collector)
NOISE = (
    "",
    "   ",
    "INFO 11-21 16:05:25 [engine.py:310] Avg prompt throughput: 12.3 tokens/s, Running: 4 reqs",
    "[2026-11-21 16:05:25 TP0] Decode batch. #running-req: 4, #token: 8123, gen throughput (token/s): 84.3",
    "Loading safetensors checkpoint shards:  45% Completed | 5/11",
)


def harmless(logs: Logs, chance: random.Random) -> list[list[str]]:
    """Change what must not matter: host names, prefixes, line ends, blank and foreign lines, one file or several."""
    hosts = {f"spark{n}": f"gx10-{chance.getrandbits(24):x}-{n}" for n in range(1, 17)} if chance.random() < 0.5 else {}
    launcher = chance.choice(LAUNCHERS)
    end = chance.choice(("", "\n", "\r\n", "  \r\n"))
    made: Logs = []
    for rank, lines in enumerate(logs):
        own = []
        for line in lines:
            host, rest = line.split(":", 1)
            own.append(f"{launcher(rank, chance)}{hosts.get(host, host)}:{rest}{end}")
            if chance.random() < 0.08:
                own.append(chance.choice(NOISE) + end)
        made.append(own)
    files = [joined(made, chance)] if chance.random() < 0.6 else made
    if chance.random() < 0.2:
        frame = chance.choice(FRAMES)
        files = [frame(lines, chance) for lines in files]
    return files


ESSENTIAL = (" via ", "Connected all rings", "Init COMPLETE", "Init START", "nNodes")


def cut(logs: Logs, chance: random.Random) -> Logs:
    """Remove what the proof needs: a rank, a channel (one line, one rank's, every rank's), or the end of a log."""
    way = chance.randrange(5)
    rank = chance.randrange(len(logs))
    made = [list(lines) for lines in logs]
    channels = [i for i, line in enumerate(made[rank]) if " via NET" in line]
    if way == 0 or not channels:
        made[rank] = []
    elif way == 1:
        del made[rank][chance.choice(channels)]
    elif way in (2, 3):
        words = made[rank][chance.choice(channels)].split("NCCL INFO ")[1].split(" : ")[0]
        for number, lines in enumerate(made):
            if way == 3 or number == rank:
                made[number] = [line for line in lines if not (words in line and " via NET" in line)]
    else:
        last = max(i for i, line in enumerate(made[rank]) if "Connected all" in line or " via " in line)
        made[rank] = made[rank][: chance.randrange(last + 1)]
    return [lines for lines in made if lines]


def negative_variant(cases: t.Sequence[Bad], chance: random.Random) -> list[list[str]]:
    """Truncate, shuffle or splice negative logs."""
    case = chance.choice(cases)
    made = [list(lines) for lines in case.logs]
    way = chance.randrange(3)
    if way == 0 and case.short_stays_negative:
        return [lines[: chance.randrange(1, len(lines) + 1)] for lines in made]
    if way == 1:
        whole = [line for lines in made for line in lines]
        chance.shuffle(whole)
        return [whole]
    others = [each for each in cases if each.short_stays_negative]
    pieces = []
    for _turn in range(chance.randrange(2, 5)):
        lines = chance.choice(chance.choice(others).logs)
        begin = chance.randrange(len(lines))
        pieces += lines[begin : chance.randrange(begin, len(lines)) + 1]
    return [pieces or [" "]]
