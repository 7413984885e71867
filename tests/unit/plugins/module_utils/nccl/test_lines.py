"""The grammar of NCCL's lines: headers under every prefix, names with spaces, fused devices, GIDs."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl import lines
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Reader
from ansible_collections.dgxspark.cluster.tests.unit.nccl_read import SIGNATURES

HEADER = "spark1:4000:4107 [0] "


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "0: ",
        "[1,0]<stdout>:",
        "[rank0]:",
        "(RayWorker pid=9, ip=198.51.100.1) ",
        "[pod/sglang-0/main] ",
        "2026-11-21T16:05:25.123456789Z ",
        "2026-11-21T16:05:25.1Z stdout F ",
        "[2026-11-21 16:05:25] ",
        "\x1b[36m(RayWorker pid=9)\x1b[0m ",
    ],
)
@pytest.mark.parametrize(
    "level", ["NCCL INFO ", "misc/ibvwrap.cc:202 NCCL WARN ", "plugin/net.cc:379 (init) NCCL WARN "]
)
def test_a_header_is_found_under_every_prefix(prefix: str, level: str) -> None:
    [line] = lines.split(f"{prefix}{HEADER}{level}Using network IB\r\n")
    assert (line.host, line.pid, line.tid, line.text) == ("spark1", 4000, 4107, "Using network IB")
    assert line.level == ("WARN" if "WARN" in level else "INFO")


def test_a_host_whose_name_was_taken_away() -> None:
    [line] = lines.split("[1,4]<stdout>:[4]: <cluster_name>:919:1150 [0] NCCL INFO Using network IB")
    assert (line.host, line.pid) == ("<cluster_name>", 919)


def test_two_ranks_in_one_line_are_two_messages() -> None:
    found = lines.split("a:1:1 [0] NCCL INFO Using network IBb:2:2 [1] NCCL INFO Connected all rings")
    assert [line.pid for line in found] == [1, 2]
    assert found[1].text == "Connected all rings"


def test_what_ray_folds_away_is_no_part_of_the_message() -> None:
    [line] = lines.split(f"{HEADER}NCCL INFO Connected all rings\x1b[32m [repeated 14x across cluster]\x1b[0m")
    assert line.text == "Connected all rings"


@pytest.mark.parametrize(
    ("text", "network", "device", "proxy", "gdr"),
    [
        ("Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0", "IB", 0, None, False),
        ("Channel 07/0 : 1[5] -> 9[1] [send] via NET/IBext_v11/3(4)/GDRDMA", "IBext_v11", 3, 4, True),
        (
            "Channel 00/0 : 1[5] -> 9[1] [send] via NET/AWS Libfabric/12/GDRDMA(PCI)/Shared",
            "AWS Libfabric",
            12,
            None,
            True,
        ),
        (
            "Channel 00/1 : 1[0] -> 0[0] [send] via NET/NCCL RDMA Plugin v10/2/Shared",
            "NCCL RDMA Plugin v10",
            2,
            None,
            False,
        ),
        ("Ring 00 : 1 -> 0 [receive] via NET/Socket/0", "Socket", 0, None, False),
        ("Channel 00 : 0[4000] -> 1[5000] [send] via NET/IB/0", "IB", 0, None, False),
    ],
)
def test_a_channel_over_a_network(text: str, network: str, device: int, proxy: int | None, gdr: bool) -> None:
    link = lines.parse(text)
    assert isinstance(link, lines.Link)
    assert (link.network, link.device, link.proxy, link.gdr, link.inside) == (network, device, proxy, gdr, None)
    assert link.own == (link.dst if "receive" in text else link.src)


@pytest.mark.parametrize(
    "inside", ["P2P/CUMEM", "P2P/IPC/read", "P2P/direct pointer", "SHM/direct/direct", "SHM/CE/CE"]
)
def test_a_channel_inside_a_node(inside: str) -> None:
    link = lines.parse(f"Channel 03/0 : 0[0] -> 1[1] via {inside}")
    assert isinstance(link, lines.Link)
    assert (link.network, link.inside, link.direction, link.own) == (None, inside, None, 0)


@pytest.mark.parametrize(
    "text", ["Channel 00/0 : 1[0] -> 0[0] [send] via NET/IB/", "Channel 00/0 : 1[0] -> 0[0] via N"]
)
def test_a_cut_channel_line_says_nothing(text: str) -> None:
    assert lines.parse(text) is None


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("NET/IB : Using [RO]; OOB net1:198.51.100.7<0>", []),
        ("NET/IB : Using ; OOB net1:198.51.100.7<0>", []),
        ("NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/IB [RO]; OOB ib1:198.51.100.25<0>", [[("mlx5_0", 1, "RoCE")], [("mlx5_1", 1, "IB")]]),
        (
            "NET/IB : Using [0]={[0] rocep1s0f0:1/RoCE, [1] roceP2p1s0f0:1/RoCE} [RO]; OOB eth0:198.51.100.25<0>",
            [[("rocep1s0f0", 1, "RoCE"), ("roceP2p1s0f0", 1, "RoCE")]],
        ),
        ("NET/IB : Using [0]mlx5_0:1:2:3/IB [RO]; OOB eth0:198.51.100.25<0>", [[("mlx5_0", 1, "IB")]]),
        ("NET/IB : Using [0]mlx5_0:1/IB/SHARP [RO]; OOB eth0:198.51.100.25<0>", [[("mlx5_0", 1, "IB")]]),
        ("NET/Socket : Using [0]eth0:192.0.2.2<0> [1]ib0:fe80::966d:ae03:fc:e52c%ib0<0>", [[("eth0", 0, "TCP")], [("ib0", 0, "TCP")]]),
    ],
)  # fmt: skip
def test_the_list_of_devices(text: str, ports: list[list[tuple[str, int, str]]]) -> None:
    found = lines.parse(text)
    assert isinstance(found, lines.Devices)
    assert [list(device.ports) for device in found.devices] == ports


@pytest.mark.parametrize(
    ("text", "comm_id", "child"),
    [
        ("comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0xab - Init START", "0xab", None),
        ("[Rank 0] ncclCommInitRankConfig comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0xab - Init START", "0xab", None),
        ("ncclCommSplit comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 parent 0x2 color 7 key 0- Init START", None, (None, 7)),
        ("ncclCommSplit comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 parent 0x2 splitCount 3 color -7 key 0- Init START", None, (3, -7)),
        ("ncclCommSplit comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 parent 0x2 childCount 3 color 7 key 0- Init START", None, (3, 7)),
        ("ncclCommSplit comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 parent 0x2 color 7 key 0 commId 0xab - Init START", "0xab", (None, 7)),
    ],
)  # fmt: skip
def test_the_start_of_a_communicator(text: str, comm_id: str | None, child: tuple[int | None, int] | None) -> None:
    started = lines.parse(text)
    assert isinstance(started, lines.Started)
    assert (started.comm, started.rank, started.nranks, started.comm_id) == ("0x1", 0, 2, comm_id)
    assert ((started.count, started.color) if started.parent else None) == child


@given(st.integers(0, 2**32 - 1))
def test_a_gid_is_read_back_from_the_numbers_that_nccl_prints(number: int) -> None:
    from ipaddress import IPv4Address

    address = IPv4Address(number)
    raw = b"\0\0\xff\xff" + address.packed
    assert lines.gid_text(0, int.from_bytes(raw, "little")) == f"::ffff:{address}"


def test_the_gid_of_a_queue_pair() -> None:
    gid = lines.parse(
        "NET/IB: NCCL Dev 0 IbDev 1 Port 1 qpn 300 mtu 5 GID 3 (0/16433C6FFFF0000) fifoRkey=0x1 fifoLkey=0x2"
    )
    assert gid == lines.LocalGid(1, None, 1, 3, "::ffff:198.51.100.1", 4096)
    failed = lines.parse(
        "Call to ibv_modify_qp failed with 61 No data available, on dev rocep1s0f0:1, curr state INIT, next state RTR, "
        "local GID index 3, local GID ::, remote GID ::ffff:198.51.100.2"
    )
    assert failed == lines.LocalGid(None, "rocep1s0f0", 1, 3, "::", None)


@given(st.text())
def test_no_text_breaks_the_grammar(text: str) -> None:
    for line in lines.split(text) + lines.split(f"{HEADER}NCCL INFO {text}"):
        lines.parse(line.text)


LONG = {
    "no colon": "x",
    "words": "x NCCL ",
    "colons": "1:",
    "progress": "|### \r",
    "spaces": " ",
    "half headers": "a:1:1 x.cc:1 (",
    "headers": "a:1:1 [0] NCCL INFO x ",
    "communicators": "- comm 0x1 rank 1 nranks 1 ",
    "devices": "[1]={[2] a",
    "completions": "Got completion from peer ",
    "queue pairs": "ibv_modify_qp failed on dev a:1, local GID index ",
    "not found": "network version `GLIBC_2' not foun plugin ",
    "trees": "[1] 1/1->1->",
    "settings": ";NCCL_A",
}


@pytest.mark.parametrize(
    "start", ["", "NCCL", "a:1:1 [0] NCCL INFO ", "a:1:1 [0] NCCL INFO NET/IB : Using", "a:1:1 [0] NCCL INFO Trees "]
)
@pytest.mark.parametrize("unit", LONG.values(), ids=LONG)
def test_a_long_line_takes_time_in_proportion_to_its_length(start: str, unit: str) -> None:
    """Four times the length takes about four times as long, not sixteen; the minimum time excludes the machine's other load."""

    def seconds(length: int) -> float:
        line = start + unit * (length // len(unit)) + " NCCL]"
        reader = Reader(SIGNATURES)
        before = time.process_time()
        reader.read("log", [line])
        return time.process_time() - before

    seconds(100)
    few = many = 60.0
    for _turn in range(8):
        few, many = min(few, seconds(16_000)), min(many, seconds(64_000))
        if many < 9 * few + 0.02:
            return
    pytest.fail(f"{few:.3f} s for 16,000 characters, {many:.3f} s for 64,000")


def test_what_is_said_late_in_a_long_line_is_still_found() -> None:
    failure = "torch.distributed.DistBackendError: NCCL error in: x"
    for filling in ("x" * 20_000, "|### \r" * 20_000):
        reader = Reader(SIGNATURES)
        reader.read("log", [filling + failure])
        assert [sign.id for sign in reader.finish().signs] == ["torch.nccl-error"]
    [*_engine, line] = lines.split("Loading:  45%|####     \rspark1:4000:4107 [0] NCCL INFO Using network IB")
    assert (line.host, line.text) == ("spark1", "Using network IB")
