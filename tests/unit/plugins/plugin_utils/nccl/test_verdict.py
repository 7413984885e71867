"""The verdict: on real logs made on GPUs, on published ones, and on constructed runs of what no machine here has."""

from __future__ import annotations

import random
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.evidence import merge, pack, unpack
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Reader
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import causes, transport
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.verdict import Expected
from ansible_collections.dgxspark.cluster.tests.unit import nccl_logs as made
from ansible_collections.dgxspark.cluster.tests.unit.nccl_read import TRUTH, first_cause, judged, real, shared

BAD = made.bad()


@pytest.mark.parametrize("name", TRUTH)
def test_real_logs_made_on_gpus(name: str) -> None:
    truth = TRUTH[name]
    report = judged(real(name), truth["ranks"])
    assert report["verdict"] == truth["verdict"], report["gaps"]
    if "cause" in truth:
        assert first_cause(report) == truth["cause"]
    else:
        assert not [finding for finding in report["findings"] if finding["severity"] == "error"]


@pytest.mark.parametrize(
    ("name", "verdict", "cause"),
    [
        ("p2p-rank0.log", "unknown", "nccl.ranks-missing"),  # its first 120 lines: the channels are not among them
        ("socket-rank0.log", "socket", "nccl.no-active-device"),
        ("ibforced-rank0.log", "socket", "nccl.hca-unusable"),
        ("netib-rank0.log", "failed", "nccl.no-active-device"),
        ("published/fail-ifname-down-2.20.5.log", "failed", "nccl.no-interface"),
        ("published/ib-auto-roce-and-ib-nics-2.20.5.log", "ib", ""),
        ("published/roce-1nic-nogdr-2.20.5.log", "ib", ""),
        ("published/socket-hca-port-down-2.20.5.log", "socket", "nccl.hca-unusable"),
        ("published/socket-ib-disabled-ens-2.20.5.log", "socket", "nccl.ib-disabled"),
    ],
)
def test_published_logs(name: str, verdict: str, cause: str) -> None:
    report = judged([shared(name)], 2)
    assert (report["verdict"], first_cause(report)) == (verdict, cause)


def test_of_listed_ports_only_the_one_that_carries_channels_is_named() -> None:
    report = judged([shared("published/ib-auto-roce-and-ib-nics-2.20.5.log")], 2)
    assert {port["name"] for link in report["links"] for port in link["ports"]} == {"mlx5_1"}
    assert {port["link"] for link in report["links"] for port in link["ports"]} == {"IB"}


@pytest.mark.parametrize("name", made.GOOD)
@pytest.mark.parametrize("told", [True, False])
def test_constructed_runs_over_rdma(name: str, told: bool) -> None:
    job = made.GOOD[name]
    report = judged(made.build(job), job.ranks if told else None)
    assert (report["verdict"], report["gaps"]) == ("ib", [])
    assert report["complete"]


@pytest.mark.parametrize("name", BAD)
def test_constructed_failures(name: str) -> None:
    report = judged(BAD[name].logs, max(2, len(BAD[name].logs)))
    assert (report["verdict"], first_cause(report)) == (BAD[name].verdict, BAD[name].cause)


@pytest.mark.parametrize("name", BAD)
def test_every_cause_names_subject_and_remedy(name: str) -> None:
    for finding in judged(BAD[name].logs, max(2, len(BAD[name].logs)))["findings"]:
        assert finding["subject"] and finding["message"] and finding["remedy"]
        assert "{" not in finding["message"] + finding["remedy"]


def devices(name: str) -> set[tuple[str, ...]]:
    job = made.GOOD[name]
    links = judged(made.build(job), job.ranks)["links"]
    return {tuple(p["name"] for p in link["ports"]) for link in links if link["transport"].startswith("NET/")}


def test_the_hcas_that_carry_channels_are_named_fused_ones_together() -> None:
    one, two = "rocep1s0f0", "roceP2p1s0f0"
    assert devices("roce-one-hca-2.20.5") == {(one,)}
    assert devices("roce-two-hcas-2.21.5") == {(one,), (two,)}
    assert devices("roce-fused-2.22.3") == {(one, two)}  # one entry of the list
    assert devices("roce-fused-2.26.2") == {(one, two)}  # an index beyond the list


def test_gid_and_roce_version_of_a_port() -> None:
    job = made.GOOD["roce-four-nodes-2.28.9"]
    links = judged(made.build(job), 4)["links"]
    ports = {(link["rank"], p["gid_index"], p["gid"], p["roce_version"]) for link in links for p in link["ports"]}
    assert ports == {(rank, 3, f"::ffff:198.51.100.{rank + 1}", 2) for rank in range(4)}


def test_gpudirect_and_pxn_are_told() -> None:
    report = judged(made.build(made.GOOD["gdr-pxn-2.28.9"]), 4)
    [comm] = report["communicators"]
    assert comm["gpudirect"] is True and comm["pxn"] is True
    assert {link["pxn_rank"] for link in report["links"] if link["pxn_rank"] is not None}
    [plain] = judged(made.build(made.GOOD["roce-one-hca-2.20.5"]), 2)["communicators"]
    assert plain["gpudirect"] is False and plain["pxn"] is False


@pytest.mark.parametrize("name", ["IB", "IBext", "IBext_v8", "IBext_v11", "NCCL RDMA Plugin v10"])
def test_rdma_plugins_are_the_same_transport(name: str) -> None:
    assert causes.kind_of(name) == "ib"


@pytest.mark.parametrize("name", ["AWS Libfabric", "SPCX", "IBnot", "Socketeer", "UCX"])
def test_other_networks_are_not(name: str) -> None:
    assert causes.kind_of(name) == "other"


def test_more_ranks_or_nodes_than_the_logs_hold_are_no_proof() -> None:
    logs = made.build(made.GOOD["roce-one-hca-2.20.5"])
    assert judged(logs, 2, nodes=2, ranks_per_node=1)["verdict"] == "ib"
    assert judged(logs, 4)["verdict"] == "unknown"
    assert judged(logs, 2, nodes=4)["verdict"] == "unknown"
    assert judged(logs, 2, ranks_per_node=2)["verdict"] == "unknown"
    assert judged(logs, 1)["verdict"] == "unknown"


def test_two_runs_in_one_log_are_no_proof() -> None:
    one, two = made.build(made.Job(seed=1)), made.build(made.Job(seed=2))
    assert judged([one[0] + two[0], one[1] + two[1]], 2)["verdict"] == "unknown"


def test_an_error_after_a_good_start_is_a_failure_in_any_order() -> None:
    case = BAD["path-dead-2.28.9"]
    lines = [line for log in case.logs for line in log]
    for seed in range(5):
        random.Random(seed).shuffle(lines)
        assert judged([lines], 2)["verdict"] == "failed"


def test_a_lost_peer_after_the_own_end_is_no_failure() -> None:
    logs = made.build(made.Job(destroyed=True))
    head = logs[0][0].split("NCCL INFO")[0]
    late = f"{head}misc/socket.cc:72 NCCL WARN socketProgress: Connection closed by remote peer spark2<43210>"
    assert judged([[*logs[0], late], logs[1]], 2)["verdict"] == "ib"
    assert judged([[logs[0][0], late, *logs[0][1:]], logs[1]], 2)["verdict"] == "failed"


def test_what_fails_at_the_programs_end_is_no_failure() -> None:
    logs = made.build(made.Job(destroyed=True))
    head = logs[0][0].split("NCCL INFO")[0]
    late = [
        f"{head}init.cc:2050 NCCL WARN comm 0x5500000 has already been destroyed",
        f"{head}NCCL INFO init.cc:2064 -> 4",
    ]
    late.append(f"{head}misc/strongstream.cc:395 NCCL WARN Cuda failure 'driver shutting down'")
    assert judged([logs[0] + late, logs[1]], 2)["verdict"] == "ib"
    assert judged([late + logs[0], logs[1]], 2)["verdict"] == "failed"


@pytest.mark.parametrize(
    "trace",
    [
        "init.cc:2064 -> 5",
        "init.cc:2064 -> 4",  # without the warning that tells what was already torn down
        "init.cc:1358 (ncclCommInitRankFunc) -> 1",
        "init.cc:2064 -> 6 [Async thread]",
        "proxy.cc:698 -> 6",
        "proxy.cc:874 -> 6 [Progress Thread]",
        "transport/net.cc:1302 -> 6",
        "bootstrap.cc:77 -> 2",
    ],
)
def test_what_gives_up_behind_a_run_that_was_torn_down_whole_is_another_run_s(trace: str) -> None:
    """NCCL joins its threads before it says `Destroy COMPLETE`: after it only a caller can be refused, and NCCL logs why."""
    logs = made.build(made.Job(destroyed=True))
    assert judged([[*logs[0], f"{_head(logs[0])}NCCL INFO {trace}"], logs[1]], 2)["verdict"] == "failed"


@pytest.mark.parametrize(
    "name", ["roce-one-hca-2.20.5", "roce-two-hcas-2.23.4", "gdr-pxn-2.28.9", "groups-2.28.9", "split-2.29.7"]
)
def test_without_any_one_line_of_the_proof_it_is_none(name: str) -> None:
    """Every line of a channel over the network, every start, end and connection counts."""
    job = made.GOOD[name]
    logs = made.build(job)
    counts = (" via ", "Connected all rings", "Init START", "Init COMPLETE", "nNodes", f"/{job.channels:02d} :")
    for rank, lines in enumerate(logs):
        for place, line in enumerate(lines):
            inside = job.groups and "via P2P" in line  # nothing needs to be proven about a group inside a node
            if any(text in line for text in counts) and not inside and not _of_a_group_inside(job, lines, place):
                left = [x if number != rank else x[:place] + x[place + 1 :] for number, x in enumerate(logs)]
                assert judged(left, job.ranks)["verdict"] != "ib", line


def _of_a_group_inside(job: made.Job, lines: list[str], place: int) -> bool:
    """Whether a line is of a communicator that stays inside a node."""
    spans = [line for line in lines[: place + 2] if "nNodes" in line]
    return "nNodes 1" in spans[-1] or (
        len(job.groups) > 0 and "Init START" in lines[place] and "nNodes 1" in lines[place + 1]
    )


def test_harmless_warnings_are_no_causes() -> None:
    logs = made.build(made.Job())
    head = logs[0][0].split("NCCL INFO")[0]
    extra = [
        f"{head}transport/net_ib.cc:500 NCCL WARN NET/IB : Unable to open device rocep1s0f0v3",
        f"{head}NCCL INFO Call to ibv_set_ece failed with error Operation not supported errno 95",
        f"{head}NCCL INFO Continuing in spite of a RAS initialization error",
        f"{head}NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'rocep1s0f0'",
    ]
    report = judged([extra + logs[0], logs[1]], 2)
    assert (report["verdict"], report["findings"]) == ("ib", [])


def test_a_warning_that_nobody_knows_is_shown_where_nothing_else_tells() -> None:
    logs = made.build(made.Job())
    head = logs[0][0].split("NCCL INFO")[0]
    warned = [f"{head}x.cc:1 NCCL WARN The flux capacitor is empty", f"{head}NCCL INFO group.cc:133 -> 3"]
    report = judged([logs[0] + warned, logs[1]], 2)
    assert report["verdict"] == "failed"
    assert {f["id"]: f["line"] for f in report["findings"]}["nccl.warning"] == "The flux capacitor is empty"
    passing = judged([logs[0] + warned[:1], logs[1]], 2)
    assert passing["verdict"] == "ib"
    assert [(f["id"], f["severity"], f["line"]) for f in passing["findings"]] == [
        ("nccl.warning", "warning", "The flux capacitor is empty")
    ]


def test_each_unknown_warning_is_listed_once_with_the_ranks_that_say_it() -> None:
    logs = made.build(made.Job(nodes=4))
    for log in logs:
        log.append(f"{log[0].split('NCCL INFO')[0]}x.cc:1 NCCL WARN The flux capacitor is empty")
    logs[1].append(f"{logs[1][0].split('NCCL INFO')[0]}x.cc:2 NCCL WARN The dilithium is out")
    found = {f["line"]: f["subject"] for f in judged(logs, 4)["findings"]}
    assert set(found) == {"The flux capacitor is empty", "The dilithium is out"}
    assert "rank 0" in found["The flux capacitor is empty"] and "3 more" in found["The flux capacitor is empty"]
    assert found["The dilithium is out"].startswith("rank 1 (")


# --- what says `ib` and is not, or no longer is ---------------------------------------------------------------------


def _head(log: list[str]) -> str:
    return log[0].split("NCCL INFO")[0]


SILENT = ("Bootstrap: Using eth0:198.51.100.9<0>", "cudaDriverVersion 13000", "NET/IB : No device found.")


@pytest.mark.parametrize("process", ["another", "the same"])
@pytest.mark.parametrize("word", ["Using network Socket", ""])
def test_an_old_run_over_rdma_proves_nothing_of_a_later_one_without_a_communicator(process: str, word: str) -> None:
    logs = made.build(made.Job())
    head = "spark1:9999:9999 [0] " if process == "another" else _head(logs[0])
    later = [f"{head}NCCL INFO {text}" for text in (*SILENT, word) if text]
    report = judged([logs[0] + later, logs[1]], 2)
    assert report["verdict"] == "unknown"
    assert first_cause(report) == "nccl.no-communicator"
    assert "spark1" in report["findings"][0]["subject"] and "another run" in report["findings"][0]["message"]
    assert judged([later + logs[0], logs[1]], 2)["verdict"] == "unknown"


@pytest.mark.parametrize("network", ["Socket", "IBext_v8", "AWS Libfabric"])
def test_a_network_chosen_last_that_no_channel_uses_is_a_gap(network: str) -> None:
    logs = made.build(made.Job())
    logs[1].append(f"{_head(logs[1])}NCCL INFO Using network {network}")
    report = judged(logs, 2)
    assert report["verdict"] == "unknown"
    assert any(network in gap and "rank 1" in gap for gap in report["gaps"])


@pytest.mark.parametrize("text", ["NCCL_IB_DISABLE set by environment to 1.", "NCCL_NET set by environment to Socket."])
@pytest.mark.parametrize("network", ["IB", "IBext_v8", "NCCL RDMA Plugin v10"])
def test_a_rank_that_was_kept_from_rdma_has_no_channels_over_it(text: str, network: str) -> None:
    """It is a later run in the same log, cut before it logs more; so is one whose launcher prints its environment."""
    logs = made.build(made.Job(network=network))
    logs[1].append(f"{_head(logs[1])}NCCL INFO {text}")
    report = judged(logs, 2)
    assert report["verdict"] == "unknown"
    assert any("rank 1" in gap and "two runs" in gap for gap in report["gaps"])
    logs = made.build(made.Job())
    name, value = text.removesuffix(".").split(" set by environment to ")
    assert judged([[f"environment: {name}={value}", *logs[0]], logs[1]], 2)["verdict"] == "unknown"


def test_a_rank_that_found_no_device_has_no_channels_over_rdma() -> None:
    logs = made.build(made.Job())
    logs[1].append(f"{_head(logs[1])}NCCL INFO NET/IB : No device found.")
    assert judged(logs, 2)["verdict"] == "unknown"


@pytest.mark.parametrize(
    "text",
    [
        "NET/Socket : Using [0]eth0:198.51.100.9<0>",
        "ncclCommInitRankConfig comm 0x5500000 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0xabc - Init COMPLETE",
        "ncclCommInitRank comm 0x5500000 rank 0 nranks 2 cudaDev 0 busId 60 commId 0xabc - Init COMPLETE",
        "Channel 00/1 : 0[0] -> 1[1] via P2P/CUMEM",
        "Channel 01/0 : 0[0] -> 1[1] via SHM/direct/direct",
    ],
)
def test_one_line_of_another_run_under_the_same_number_is_a_gap(text: str) -> None:
    """A restarted container's process has the same PID, and its log may be cut anywhere."""
    logs = made.build(made.Job())
    for own in ([*logs[0], f"{_head(logs[0])}NCCL INFO {text}"], [f"{_head(logs[0])}NCCL INFO {text}", *logs[0]]):
        assert judged([own, logs[1]], 2)["verdict"] != "ib"


def test_nvlink_between_nodes_is_no_channel_inside_one() -> None:
    logs = made.build(made.Job())
    logs[0].append(f"{_head(logs[0])}NCCL INFO Channel 00/1 : 0[0] -> 1[0] via P2P/MNNVL")
    assert judged(logs, 2)["verdict"] == "ib"


def test_lines_of_a_start_that_is_not_in_the_logs_are_a_gap() -> None:
    logs = made.build(made.Job())
    for text in ("Trees [0] 1/-1/-1->0->-1", "Channel 00/04 : 0 1 2 3", "Connected all rings"):
        before = [f"{_head(logs[0])}NCCL INFO {text}", *logs[0]]
        assert judged([before, logs[1]], 2)["verdict"] == "unknown", text


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129", "nccl.path-dead"),
        ("NET/IB : Got completion with error 4, opcode 0, len 32694, vendor err 81", "nccl.local-protection"),
        ("NET/IB : Got completion with error 5, opcode 32656, len 32659, vendor err 249", "nccl.completion"),
        ("NET/IB : Got completion from peer 198.51.100.2<4> with error 5, opcode 0, len 0, vendor err 249 (Send)", "nccl.completion"),
        ("NET/IBP:Got completion from peer 198.51.100.2<36315> with status=12 opcode=0 len=32696 vendor err 129 (Send)", "nccl.path-dead"),
    ],
)  # fmt: skip
def test_a_completion_that_failed_is_known_in_every_wording(text: str, cause: str) -> None:
    logs = made.build(made.Job())
    report = judged([[*logs[0], f"{_head(logs[0])}ib_plugin.c:1615 NCCL WARN {text}"], logs[1]], 2)
    assert (report["verdict"], first_cause(report)) == ("failed", cause)


def test_a_completion_that_nccl_itself_puts_right_is_no_failure() -> None:
    text = (
        "NET/IB: ncclIbResiliencyHandleCompletionError: Got completion with error (devIndex=0, "
        "wc->status=(IBV_WC_RETRY_EXC_ERR)12, wc->opcode=(IBV_WC_SEND)0, wc->wr_id=1, wc->qp_num=300, wc->byte_len=0)"
    )
    logs = made.build(made.Job("2.30.7"))
    assert judged([[*logs[0], f"{_head(logs[0])}NCCL INFO {text}"], logs[1]], 2)["verdict"] == "ib"


@pytest.mark.parametrize(
    "trace",
    [
        "proxy.cc:874 -> 6 [Progress Thread]",
        "proxy.cc:858 -> 6 [Proxy Thread]",
        "proxy.cc:983 (ncclProxyProgress) -> 6 [Progress Thread]",
        "gin/gin_host.cc:35 -> 2 [GIN Progress Thread]",
        "proxy.cc:698 -> 6",
        "transport/net.cc:1302 -> 6",
        "misc/cudawrap.cc:90 -> 800 [Async thread]",
    ],
)
def test_a_thread_that_gave_up_is_a_failure_whatever_warning_stands_before(trace: str) -> None:
    logs = made.build(made.Job())
    failed = [f"{_head(logs[0])}x.c:1 NCCL WARN The flux capacitor is empty", f"{_head(logs[0])}NCCL INFO {trace}"]
    report = judged([logs[0] + failed, logs[1]], 2)
    assert report["verdict"] == "failed"
    assert "The flux capacitor is empty" in {finding["line"] for finding in report["findings"]}


def test_two_runs_in_one_file_are_said() -> None:
    first, second = made.build(made.Job(seed=1)), made.build(made.Job(seed=2, network="Socket"))
    for logs in ([[*a, *b] for a, b in zip(first, second, strict=True)], [*first, *second]):
        for world in (None, 2, 4):
            report = judged(logs, world)
            assert report["verdict"] == "mixed"
            [said] = [f for f in report["findings"] if f["id"] == "nccl.several-runs"]
            assert "2 runs" in said["message"] and "spark1:4001" in said["message"] and "spark1:4002" in said["message"]


def test_two_whole_runs_over_rdma_are_said_and_are_proof_of_both_where_all_ranks_are_expected() -> None:
    logs = [*made.build(made.Job(seed=1)), *made.build(made.Job(seed=2))]
    told = judged(logs, 4)
    assert (told["verdict"], [f["id"] for f in told["findings"]]) == ("ib", ["nccl.several-runs"])
    assert told["findings"][0]["severity"] == "warning"
    for world in (None, 2):
        assert (judged(logs, world)["verdict"], first_cause(judged(logs, world))) == ("unknown", "nccl.several-runs")


def test_a_run_inside_one_node_beside_one_over_rdma_is_not_proven_by_it() -> None:
    inside = made.build(made.Job(nodes=1, per_node=2, seed=2))
    for world in (None, 2, 4):
        assert judged([*made.build(made.Job(seed=1)), *inside], world)["verdict"] == "unknown"


def test_a_process_that_begins_twice_under_one_number_is_two() -> None:
    logs = made.build(made.Job())
    again = made.build(made.Job(network="Socket", seed=1000))  # the same PIDs
    report = judged([[*a, *b] for a, b in zip(logs, again, strict=True)], 2)
    assert report["verdict"] == "mixed"
    assert len(report["ranks"]) == 4
    assert "nccl.several-runs" in {finding["id"] for finding in report["findings"]}


def test_soft_roce_is_said_and_still_rdma() -> None:
    report = judged(made.build(made.Job(hcas=(("rxe0", 1, "RoCE"),))), 2)
    assert report["verdict"] == "ib"
    [said] = report["findings"]
    assert (said["id"], said["severity"]) == ("nccl.soft-roce", "warning")
    assert "rxe0" in said["message"] and "rdma link" in said["remedy"]
    listed = made.build(made.Job(hcas=(("rocep1s0f0", 1, "RoCE"), ("rxe0", 1, "RoCE")), channels=1))
    assert judged(listed, 2)["findings"] == []  # listed, but carries no traffic


def test_devices_that_cannot_be_opened_are_not_called_ports_that_are_down() -> None:
    logs = made.build(made.Job(network="Socket", oob="net1"))
    for log in logs:
        log[4:4] = [
            f"{_head(log)}transport/net_ib.cc:715 NCCL WARN NET/IB : Unable to open device {hca}"
            for hca in ("rocep1s0f0v0", "roceP2p1s0f0v0")
        ]
    report = judged(logs, 2)
    assert (report["verdict"], first_cause(report)) == ("socket", "nccl.device-not-open")
    assert "rocep1s0f0v0, roceP2p1s0f0v0" in report["findings"][0]["message"]
    assert "/dev/infiniband" in report["findings"][0]["remedy"]
    named = [[f"{_head(log)}NCCL INFO NCCL_IB_HCA set to =rocep1s0f0v9:1", *log] for log in logs]
    assert first_cause(judged(named, 2)) == "nccl.hca-unusable"  # the devices are other pods'; its own is not there
    named = [[f"{_head(log)}NCCL INFO NCCL_IB_HCA set to rocep1s0f0", *log] for log in logs]
    assert first_cause(judged(named, 2)) == "nccl.device-not-open"


def test_a_network_whose_name_has_spaces_is_missed_by_its_name() -> None:
    logs = made.build(made.Job("2.26.2"))
    text = "Error: network AWS Libfabric not found."
    cut = [[line for line in log if "NET/" not in line][:3] for log in logs]
    report = judged([[*log, f"{_head(log)}plugin/net.cc:232 NCCL WARN {text}"] for log in cut], 2)
    assert (report["verdict"], first_cause(report)) == ("failed", "nccl.network-not-found")


def test_lines_without_header_prove_nothing_but_count_against() -> None:
    for kept in (0, 1):
        bare = [[("[0] NCCL INFO " * kept) + line.split("NCCL INFO ")[1] for line in x] for x in made.build(made.Job())]
        assert judged(bare, 2)["verdict"] == "unknown"
    tcp = [
        ["[0] NCCL INFO " + line.split("NCCL INFO ")[1] for line in x]
        for x in made.bad()["no-device-in-pod-2.28.9"].logs
    ]
    assert judged(tcp, 2)["verdict"] == "socket"
    assert first_cause(judged(tcp, 2)) == "nccl.no-device-in-pod"
    good = made.build(made.Job())
    assert judged([*good, ["Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"]], 2)["verdict"] == "mixed"


@pytest.mark.parametrize("text", [[], [""], ["nothing here", "at all"], ["\ufffd" * 50]])
def test_a_log_without_nccl_is_one_clear_error(text: list[str]) -> None:
    with pytest.raises(CollectionError, match="no NCCL output"):
        judged([text], 2)


@pytest.mark.parametrize("name", ["groups-2.28.9", "split-2.29.7", "roce-four-nodes-2.28.9", "gdr-pxn-2.28.9"])
def test_nodes_read_their_own_logs_and_one_place_judges_them(name: str) -> None:
    job = made.GOOD[name]
    logs = made.build(job)
    parts = []
    for number, lines in enumerate(logs):
        reader = Reader(transport.signatures())
        reader.read(f"log {number}", lines)
        parts.append(unpack(pack(reader.finish())))
    together: dict[str, t.Any] = transport.report(merge(parts), Expected(job.ranks))
    assert together == judged(logs, job.ranks)
    assert transport.report(merge(parts[:-1]), Expected(job.ranks))["verdict"] == "unknown"
