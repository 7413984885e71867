"""The verdict: on real logs made on GPUs, on published ones, and on constructed runs of what no machine here has."""

from __future__ import annotations

import random
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl import causes
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.evidence import merge, pack, unpack
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Reader
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.verdict import Expected
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import transport
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
    assert devices("roce-fused-2.26.2") == {(one, two)}  # a number beyond the list


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
    "name", ["roce-one-hca-2.20.5", "roce-two-hcas-2.23.4", "gdr-pxn-2.28.9", "groups-2.28.9", "split-2.29.7"]
)
def test_without_any_one_line_of_the_proof_it_is_none(name: str) -> None:
    """Every line of a channel over the network, every start, end and connection counts."""
    job = made.GOOD[name]
    logs = made.build(job)
    counts = (" via ", "Connected all rings", "Init START", "Init COMPLETE", "nNodes", f"/{job.channels:02d} :")
    for rank, lines in enumerate(logs):
        for place, line in enumerate(lines):
            inside = job.groups and "via P2P" in line  # of a group inside a node nothing needs to be proven
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
    assert judged([logs[0] + warned[:1], logs[1]], 2)["findings"] == []


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
    with pytest.raises(FabricError, match="nothing of NCCL"):
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
