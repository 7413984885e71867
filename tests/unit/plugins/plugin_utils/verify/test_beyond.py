"""What comes after the fabric: modes, NCCL on the nodes and in the pod, tokens, and the counters around a request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Reader
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import transport as nccl_transport
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.verdict import Expected
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.modes import mode_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.report import STEP_IDS
from ansible_collections.dgxspark.cluster.tests.support.beyond_fabric import (
    ALL,
    BOTH,
    CANARY,
    FUNCTIONS,
    GIB,
    MODES,
    judge,
    nccl,
    readings,
    run,
    transport,
)
from ansible_collections.dgxspark.cluster.tests.support.recorded_bands import RECORDED
from ansible_collections.dgxspark.cluster.tests.unit import nccl_logs
from ansible_collections.dgxspark.cluster.tests.unit.verify_inputs import SLOTS, Cluster, Plain, statuses, step


def test_the_modes_ask_for_more_and_more() -> None:
    assert list(MODES) == ["quick", "full", "strict"]
    required = [set(MODES[name]["required_steps"]) for name in MODES]
    assert required[0] < required[1] < required[2] == set(STEP_IDS)


def test_strict_passes_when_everything_is_shown() -> None:
    report = judge(Cluster(4), **ALL)
    assert report["verdict"] == "passed"
    assert set(statuses(report, beyond=True).values()) == {"pass"}
    assert report["headline"].startswith("PASSED: link, mtu, arp, gid, rdma, nccl, pod, tokens, wire on 4 hosts")


@pytest.mark.parametrize("left", ["nccl", "pod", "tokens", "wire"])
def test_strict_is_incomplete_without_any_of_them_and_full_is_not(left: str) -> None:
    done = {name: value for name, value in ALL.items() if name != left}
    strict = judge(Cluster(4), **done)
    assert strict["verdict"] == "incomplete"
    assert strict["headline"].startswith(f"INCOMPLETE: {left} not run as required: ")
    full = judge(Cluster(4), "full", **done)
    assert full["verdict"] == "passed"
    assert full["headline"].endswith(f" Not run: {left}.")
    assert step(full, left)["status"] == "not run"
    assert step(full, left)["results"][0]["message"]


def test_a_reason_why_it_was_not_run_is_told() -> None:
    report = judge(Cluster(4), **ALL | {"nccl": {"reason": "beside a serving model there is no memory for it"}})
    assert report["verdict"] == "incomplete"
    assert "no memory for it." in report["headline"]


def test_quick_takes_no_rdma_and_says_so() -> None:
    cluster = Cluster(2)
    cluster.thresholds["id"] = "spark"
    cluster.probe()
    report = judge(cluster, "quick")
    assert report["verdict"] == "passed"
    rdma = step(report, "rdma")
    assert (rdma["status"], rdma["results"][0]["message"]) == ("not run", "mode quick does not require it.")
    assert judge(cluster, "full")["verdict"] == "incomplete"


def test_what_a_mode_does_not_require_still_fails_when_it_was_done() -> None:
    report = judge(Cluster(4), "quick", nccl=nccl(2.12, transport=transport("socket", ())))
    assert report["verdict"] == "failed"


def test_a_mode_with_an_unknown_step_is_refused() -> None:
    with pytest.raises(CollectionError, match="mode quick: there is no step 'gpu'"):
        mode_of({**MODES["quick"], "required_steps": ["link", "gpu"]}, STEP_IDS)
    with pytest.raises(CollectionError, match="an entry of the knowledge base's kind modes is needed"):
        mode_of("quick", STEP_IDS)


def causes(report: Plain) -> list[tuple[str, bool]]:
    return [(cause["id"], cause["suspected"]) for cause in report["causes"]]


def test_half_the_bandwidth_is_suspected_to_be_one_function_until_the_log_says_so() -> None:
    alone = judge(Cluster(4), **ALL | {"nccl": nccl(9.78, transport=None)})
    assert causes(alone) == [("nccl.one-function", True)]
    assert "(suspected)" in alone["causes"][0]["message"]
    assert "NCCL_IB_HCA" in alone["causes"][0]["remedy"]
    logged = judge(Cluster(4), **ALL | {"nccl": nccl(9.78, transport=transport(hcas=FUNCTIONS[:1]))})
    assert causes(logged) == [("nccl.one-function", False)]
    counted = nccl(9.78, transport=None)
    counted["counters"] = {f"spark{n}": readings({FUNCTIONS[0]: GIB, FUNCTIONS[1]: 0}) for n in (1, 2, 3, 4)}
    assert causes(judge(Cluster(4), **ALL | {"nccl": counted})) == [("nccl.one-function", False)]


def test_a_cause_that_the_log_rules_out_is_not_named() -> None:
    report = judge(Cluster(4), **ALL | {"nccl": nccl(9.78)})
    assert causes(report) == [("nccl.slow", True)]
    assert "rule that out" in report["causes"][0]["message"]


def test_sockets_are_one_cause_by_log_and_figure() -> None:
    report = judge(Cluster(4), **ALL | {"nccl": nccl(2.12, transport=transport("socket", ()))})
    (cause,) = report["causes"]
    assert (cause["id"], cause["suspected"]) == ("nccl.socket", False)
    assert cause["seen"] == ["nccl transport", "nccl all_reduce 1 GiB"]


def test_between_the_bands_nothing_is_proven() -> None:
    report = judge(Cluster(4), **ALL | {"nccl": nccl(6.0)})
    assert report["verdict"] == "incomplete"
    assert statuses(report, beyond=True)["nccl"] == "unknown"
    assert ": 6 GB/s: that is in no known band" in report["headline"]


def test_a_warning_passes_and_is_told() -> None:
    report = judge(Cluster(4), **ALL | {"nccl": nccl(18.94)})
    assert report["verdict"] == "passed"
    (warning,) = report["warnings"]
    assert (warning["id"], warning["suspected"]) == ("nccl.below-best", True)
    assert "1 with a warning" in step(report, "nccl")["summary"]


def test_a_transport_without_proof_is_unknown_and_a_strange_one_refused() -> None:
    report = judge(Cluster(4), **ALL | {"nccl": nccl(transport={"verdict": "unknown", "summary": "rank 3 is cut off"})})
    assert statuses(report, beyond=True)["nccl"] == "unknown"
    with pytest.raises(CollectionError, match="'fast' is not one of ib, socket"):
        judge(Cluster(4), **ALL | {"nccl": nccl(transport={"verdict": "fast"})})


def test_the_largest_message_is_judged_and_small_ones_are_kept() -> None:
    done = nccl()
    done["runs"] = [run(0.2, size=8192), run(22.0, size=2 * GIB), run(21.0, "all_gather"), run(11.0, size=GIB)]
    report = judge(Cluster(4), **ALL | {"nccl": done})
    assert report["verdict"] == "passed"
    assert [r["subject"] for r in step(report, "nccl")["results"]][1:] == [
        "nccl all_reduce 2 GiB",
        "nccl all_gather 1 GiB",
    ]
    curve = next(c for c in report["bandwidth"] if (c["step"], c["operation"]) == ("nccl", "all_reduce"))
    assert [point["bytes"] for point in curve["points"]] == [8192, GIB, 2 * GIB]


def test_a_fault_of_the_fabric_explains_what_nccl_makes_of_it() -> None:
    cluster = Cluster(4)
    cluster.function("spark2", 1)["netdev"] |= {"operstate": "down", "carrier": False}
    report = judge(cluster, **ALL | {"nccl": nccl(9.78, transport=None)})
    assert [cause["id"] for cause in report["causes"]] == ["link.down"]
    assert "nccl all_reduce 1 GiB: nccl.one-function" in report["causes"][0]["consequences"]


# --- what nccl_transport and nccl_bench.py really return ----------------------------------------------------------------


def logged(*hcas: str, network: str = "IB") -> Plain:
    """What nccl_transport returns for a constructed log of four nodes whose channels use these HCAs."""
    job = nccl_logs.Job(nodes=4, hcas=tuple((hca, 1, "RoCE") for hca in hcas), channels=4, network=network)
    reader = Reader(nccl_transport.signatures())
    for number, lines in enumerate(nccl_logs.build(job)):
        reader.read(f"rank {number}", lines)
    return nccl_transport.report(reader.finish(), Expected(4))


@pytest.mark.parametrize(
    ("hcas", "cause", "suspected"),
    [
        (FUNCTIONS[:1], "nccl.one-function", False),
        (FUNCTIONS, "nccl.slow", True),
        (("mlx5_9",), "nccl.one-function", True),
    ],
)
def test_the_log_itself_confirms_or_rules_out(hcas: tuple[str, ...], cause: str, suspected: bool) -> None:
    told = logged(*hcas)
    assert told["verdict"] == "ib"
    report = judge(Cluster(4), **ALL | {"nccl": nccl(9.78, transport=told)})
    assert causes(report) == [(cause, suspected)]
    assert step(report, "nccl")["results"][0]["figures"]["hcas"] == {f"spark{n}": list(hcas) for n in (1, 2, 3, 4)}


def test_a_log_of_sockets_is_the_cause() -> None:
    report = judge(Cluster(4), **ALL | {"nccl": nccl(2.12, transport=logged(*FUNCTIONS, network="Socket"))})
    assert causes(report) == [("nccl.socket", False)]


def printed(busbw: float, *, end: bool = True) -> str:
    """What the benchmark prints for four ranks that reach this bus bandwidth at 1 GiB."""
    row = {"operation": "all_reduce", "bytes": GIB, "ranks": 4, "calls": 5, "rounds_us": [GIB / busbw * 1.5 / 1000]}
    return f"NCCL_BENCH {json.dumps(row)}\n" + ("NCCL_BENCH_END {}\n" if end else "")


def test_the_benchmark_s_own_output_is_judged() -> None:
    done = {"hosts": ALL["nccl"]["hosts"], "output": printed(22.5), "transport": logged(*FUNCTIONS)}
    report = judge(Cluster(4), **ALL | {"nccl": done})
    assert report["verdict"] == "passed"
    assert step(report, "nccl")["results"][1]["figures"]["busbw"] == pytest.approx(22.5)
    (points,) = [c["points"] for c in report["bandwidth"] if c["step"] == "nccl"]
    assert points[0]["bytes"] == GIB


def test_a_benchmark_that_did_not_end_proves_nothing() -> None:
    report = judge(Cluster(4), **ALL | {"nccl": {**nccl(), "runs": [], "output": printed(22.5, end=False)}})
    assert statuses(report, beyond=True)["nccl"] == "unknown"
    assert "did not finish" in report["headline"]


@pytest.mark.parametrize("verdict", ["ib", "unknown"])
def test_a_rank_that_failed_is_named_with_its_host(verdict: str) -> None:
    faults = [{"host": "spark3", "message": "its rank ended with status 1: CUDA out of memory"}]
    done = {**nccl(transport=transport(verdict)), "runs": [], "output": "", "faults": faults}
    report = judge(Cluster(4), **ALL | {"nccl": done})
    (cause,) = report["causes"]
    assert (cause["id"], cause["where"]) == ("nccl.rank-failed", "spark3")
    assert "CUDA out of memory" in cause["message"]


def test_a_rank_that_failed_for_nccl_s_own_reason_is_that_one_cause() -> None:
    told = transport(
        "failed", findings=[{"id": "nccl.x", "severity": "error", "message": "No device.", "remedy": "R."}]
    )
    done = {**nccl(transport=told), "runs": [], "output": "", "faults": [{"host": "spark3", "message": "status 1"}]}
    report = judge(Cluster(4), **ALL | {"nccl": done})
    assert causes(report) == [("nccl.failed", False)]
    assert "No device" in report["causes"][0]["message"]


@pytest.mark.parametrize("half", [FUNCTIONS, FUNCTIONS[:1]])
def test_what_is_known_of_some_hosts_alone_rules_nothing_out(half: tuple[str, ...]) -> None:
    """Counters of two hosts of four: one that is idle there counts as idle; if all are busy there, the others may not be."""
    counted = nccl(9.78, transport=None)
    moved = {FUNCTIONS[0]: GIB, FUNCTIONS[1]: GIB if len(half) == 2 else 0}
    counted["counters"] = {f"spark{n}": readings(moved) for n in (1, 2)}
    suspected = len(half) == 2
    assert causes(judge(Cluster(4), **ALL | {"nccl": counted})) == [("nccl.one-function", suspected)]
    idle = nccl(2.12, transport=None, counters={"spark1": readings(dict.fromkeys(FUNCTIONS, 0))})
    assert causes(judge(Cluster(4), **ALL | {"nccl": idle})) == [("nccl.socket", True)]
    log = nccl(9.78, transport=transport(hcas=half, hosts=2))
    assert causes(judge(Cluster(4), **ALL | {"nccl": log})) == [("nccl.one-function", suspected)]


@pytest.mark.parametrize("row", RECORDED, ids=[f"{row[0]}: {row[5]:.4g}" for row in RECORDED])
def test_recorded_figures_of_sparks_become_the_right_cause_of_the_report(row: tuple[Any, ...]) -> None:
    """As in test_bands.py, but through verify: from the figure to what the owner is told."""
    _where, operation, topology, nodes, size, busbw, verdict, cause = row
    both = topology in ("triangle", "ring")
    cluster = Cluster(nodes, slots=tuple(SLOTS) if both else ("p0f0", "p0f1"))
    cluster.plan["topology"] = topology
    hosts = [f"spark{n}" for n in range(1, nodes + 1)]
    report = judge(cluster, "full", nccl={"hosts": hosts, "runs": [run(busbw, operation, size)]})
    status = {"pass": "pass", "warn": "pass", "suspect": "fail", "unknown": "unknown"}[verdict]
    assert statuses(report, beyond=True)["nccl"] == status
    assert report["verdict"] == ("failed" if verdict == "suspect" else "passed")
    assert causes(report) == ([(cause, True)] if verdict == "suspect" else [])
    told = [(warning["id"], warning["suspected"]) for warning in report["warnings"]]
    assert told == ([(cause, True)] if verdict == "warn" else [])


def test_what_one_port_carries_is_no_pass_for_two_in_use() -> None:
    for slots, status in ((("p0f0", "p0f1"), "pass"), (tuple(SLOTS), "unknown")):
        report = judge(Cluster(2, slots=slots), "full", nccl={"hosts": ["spark1", "spark2"], "runs": [run(22.0)]})
        assert statuses(report, beyond=True)["nccl"] == status


# --- the wire ---------------------------------------------------------------------------------------------------------


def wire(**by_host: Plain) -> Plain:
    return ALL | {"wire": {"counters": {f"spark{n}": readings(BOTH) for n in (1, 2, 3, 4)} | by_host}}


def test_a_request_that_took_no_fabric_is_caught() -> None:
    idle = dict.fromkeys(FUNCTIONS, 4096)
    report = judge(Cluster(4), **ALL | {"wire": {"counters": {f"spark{n}": readings(idle) for n in (1, 2, 3, 4)}}})
    assert {cause["id"] for cause in report["causes"]} == {"wire.idle"}
    assert report["verdict"] == "failed"


def test_a_function_that_carried_nothing_is_named() -> None:
    report = judge(Cluster(4), **wire(spark3=readings({FUNCTIONS[0]: GIB, FUNCTIONS[1]: 0})))
    (cause,) = report["causes"]
    assert (cause["id"], cause["where"]) == ("wire.one-function", "spark3 p0f1")


def test_a_reset_or_a_missing_reading_is_unknown_not_passed() -> None:
    reset = readings(BOTH)
    reset["after"][0]["counts"]["port_xmit_data"] = 5
    for bad in (reset, {"before": [], "after": readings(BOTH)["after"]}, readings({"mlx5_9": GIB})):
        report = judge(Cluster(4), **wire(spark2=bad))
        assert statuses(report, beyond=True)["wire"] == "unknown"
        assert report["verdict"] == "incomplete"
        assert "spark2" in report["headline"]


def test_soft_roce_proves_it_by_packets() -> None:
    packets = {f"spark{n}": readings(dict.fromkeys(FUNCTIONS, 4000), words=False) for n in (1, 2, 3, 4)}
    assert judge(Cluster(4), **ALL | {"wire": {"counters": packets}})["verdict"] == "passed"
    few = {f"spark{n}": readings(dict.fromkeys(FUNCTIONS, 2), words=False) for n in (1, 2, 3, 4)}
    assert judge(Cluster(4), **ALL | {"wire": {"counters": few}})["verdict"] == "failed"


def test_lost_packets_are_a_warning() -> None:
    lossy = readings(BOTH)
    for number, reading in enumerate(lossy.values()):
        reading[0]["counts"]["out_of_sequence"] = 7 * number
    report = judge(Cluster(4), **wire(spark1=lossy))
    assert report["verdict"] == "passed"
    assert "rocep1s0f0v0: out_of_sequence +7" in report["warnings"][0]["message"]


def test_one_host_alone_crosses_no_fabric() -> None:
    report = judge(Cluster(4), "full", wire={"counters": {"spark1": readings(BOTH)}})
    assert statuses(report, beyond=True)["wire"] == "not run"
    assert report["verdict"] == "passed"


# --- tokens -----------------------------------------------------------------------------------------------------------


def test_a_group_that_answers_garbage_fails_with_its_cause() -> None:
    bad = {
        "name": "default",
        "status": "failed",
        "cause": "tokens.garbage",
        "message": "default: stuck.",
        "remedy": "R.",
    }
    report = judge(Cluster(4), **ALL | {"tokens": {"groups": [*CANARY["groups"], bad]}})
    (cause,) = report["causes"]
    assert (cause["id"], cause["remedy"]) == ("tokens.garbage", "R.")
    assert step(report, "tokens")["summary"].startswith("1 passed, 1 failed")


def test_a_wrong_form_is_one_clear_error() -> None:
    with pytest.raises(CollectionError, match="nccl: a dictionary is needed, not str"):
        judge(Cluster(4), nccl="fast")
    with pytest.raises(CollectionError, match=r"wire.counters: a dictionary by host is needed"):
        judge(Cluster(4), wire={"counters": [1]})
    with pytest.raises(CollectionError, match=r"wire.counters.spark1: a dictionary with `before` and `after`"):
        judge(Cluster(4), wire={"counters": {"spark1": 5, "spark2": 5}})


def test_the_image_that_ranks_run_is_told_and_one_that_has_changed_fails() -> None:
    image = {"name": "registry.example/engine:1", "digest": f"sha256:{'a' * 64}", "problems": []}
    whole = judge(Cluster(4), pod={**nccl(), "image": image, "versions": {"engine_image": "registry.example/engine:1"}})
    assert whole["versions"]["engine_image"] == "registry.example/engine:1"
    (told,) = [each for each in step(whole, "pod")["results"] if each["subject"] == "pod image"]
    assert (told["status"], image["digest"] in told["message"]) == ("pass", True)
    changed = judge(Cluster(4), pod={**nccl(), "image": {**image, "digest": None, "problems": ["spark4 differs."]}})
    assert step(changed, "pod")["status"] == "fail"
    assert "spark4 differs." in str(changed["causes"])


# --- requests at once -------------------------------------------------------------------------------------------------


def level(n: int, verdict: str, message: str = "") -> dict[str, Any]:
    return {"n": n, "verdict": verdict, "message": message, "figures": {"ok": n, "wall_tokens_per_s": 44.0}}


def test_garbage_at_the_plan_s_number_of_requests_fails_though_one_alone_is_good() -> None:
    levels = [level(1, "good"), level(8, "garbage", "8 at once: 3 answers are garbage.")]
    canary = CANARY | {"together": {"workloads": [{"name": "chat", "levels": levels}]}}
    report = judge(Cluster(4), **ALL | {"tokens": canary})
    assert report["verdict"] == "failed"
    (cause,) = report["causes"]
    assert (cause["id"], cause["message"]) == ("tokens.garbage", "8 at once: 3 answers are garbage.")
    assert step(report, "tokens")["summary"].startswith("2 passed, 1 failed")


def test_a_number_of_requests_that_nobody_knows_is_not_run() -> None:
    report = judge(Cluster(4), **ALL | {"tokens": CANARY | {"together": {"reason": "the plan does not say"}}})
    assert report["verdict"] == "incomplete"
