"""RDMA over both functions of a port at the same time: what is planned, and what the sum says."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.tests.unit.verify_inputs import Cluster, Plain, step

SLOTS = ("p0f0", "p0f1", "p1f0", "p1f1")


def cluster(hosts: int = 2, mtu: int = 9000, least: float | None = 184, **more: Any) -> Cluster:
    made = Cluster(hosts, **more)
    if least is not None:
        made.thresholds["rdma"]["write"]["min_gbps_together"] = [{"mtu": mtu, "gbps": least}]
    return made


def results(report: Plain) -> list[Plain]:
    return [result for result in step(report, "rdma")["results"] if result["subject"].endswith("together")]


def at_once(made: Cluster) -> list[list[Plain]]:
    """The first host's tests that belong together, group by group."""
    made.probe()
    groups: dict[str, list[Plain]] = {}
    for tests in made.meet():
        for test in tests["spark1"]:
            if test.get("together"):
                groups.setdefault(test["together"], []).append(test)
    return list(groups.values())


def test_both_functions_of_a_pair_meet_at_the_same_time_both_ways() -> None:
    first, second = at_once(cluster())
    assert [(test["role"], test["hca"]) for test in first] == [("client", "rocep1s0f0v0"), ("client", "roceP2p1s0f0v0")]
    assert [test["role"] for test in second] == ["server", "server"]
    ports = [test["port"] for test in first + second]
    assert len(set(ports)) == len(ports)


@pytest.mark.parametrize(
    ("mtu", "passes", "fails"),
    [
        # As the thresholds' sources and the bands' have it.
        (9000, 109.18, 97.28),  # LLMKube; the best that NVIDIA's playbooks have at MTU 1500
        (1500, 92.57, 13),  # NVIDIA's playbooks; a throttled ConnectX-7 (gx10-cluster)
    ],
)
def test_a_function_s_measured_bandwidth_passes_and_a_slow_path_fails(mtu: int, passes: float, fails: float) -> None:
    limits = knowledge.get("thresholds", "spark")["rdma"]["write"]["min_gbps"]
    (least,) = [entry["gbps"] for entry in limits if entry["mtu"] == mtu]
    assert fails < least <= passes


def test_each_port_is_tested_for_itself() -> None:
    groups = at_once(cluster(slots=SLOTS))
    assert len(groups) == 4
    # …s0f0v0 belongs to port 0, …s0f1v0 to port 1
    assert [{test["hca"][-3] for test in group} for group in groups] == [{"0"}, {"0"}, {"1"}, {"1"}]
    assert {len(group) for group in groups} == {2}


def test_nothing_is_tested_together_where_nobody_asks() -> None:
    assert at_once(cluster(least=None)) == []
    assert at_once(cluster(mtu=9216)) == []
    assert at_once(cluster(slots=("p0f0",))) == []


def test_a_first_vf_in_a_pod_leaves_it_to_the_next() -> None:
    made = cluster()
    made.vf("spark1", 0, 0)["place"] = {"state": "pod", "netns": "/run/netns/cni-1", "pids": 1}
    (first, _second) = at_once(made)
    assert [test["hca"] for test in first] == ["rocep1s0f0v1", "roceP2p1s0f0v1"]


def test_a_healthy_pair_passes_with_the_sum() -> None:
    report = cluster(3).outcome()
    assert report["verdict"] == "passed"
    assert len(results(report)) == 6
    assert {result["figures"]["gbps_together"] for result in results(report)} == {213.0}
    assert "together 213 Gb/s" in step(report, "rdma")["summary"]


@pytest.mark.parametrize(
    ("first", "second", "passes"),
    [(109.19, 109.18, True), (92.57, 92.57, True), (92.0, 92.0, True), (91.9, 92.0, False), (98.0, 20.0, False)],
)
def test_the_sum_is_judged(first: float, second: float, passes: bool) -> None:
    made = cluster()
    made.rdma["together/spark1:p0f0v0>spark2:p0f0v0"] = {"figures": {"gbps": first}}
    made.rdma["together/spark1:p0f1v0>spark2:p0f1v0"] = {"figures": {"gbps": second}}
    report = made.outcome()
    there = results(report)[0]
    assert there["status"] == ("pass" if passes else "fail")
    if not passes:
        (cause,) = report["causes"]
        assert cause["id"] == "rdma.together"
        assert "at least 184 is required" in cause["message"]
        assert "PCIe width" in cause["remedy"]


def test_a_function_that_is_slow_alone_is_the_cause_alone() -> None:
    made = cluster()
    made.rdma["write/spark1:p0f1v0>spark2:p0f1v0"] = {"figures": {"gbps": 12.0}}
    report = made.outcome()
    assert [cause["id"] for cause in report["causes"]] == ["rdma.slow"]
    assert results(report) == []


def test_one_that_fails_only_together_is_said() -> None:
    made = cluster()
    made.rdma["together/spark1:p0f1v0>spark2:p0f1v0"] = {
        "status": "error",
        "message": "Couldn't allocate MR",
        "figures": {},
    }
    report = made.outcome()
    assert results(report)[0]["cause"] == "rdma.together"
    assert "Couldn't allocate MR" in results(report)[0]["message"]


def test_sparks_are_asked_for_184_and_the_lab_for_nothing() -> None:
    assert knowledge.get("thresholds", "spark")["rdma"]["write"]["min_gbps_together"] == [{"mtu": 9000, "gbps": 184}]
    assert "min_gbps_together" not in knowledge.get("thresholds", "lab")["rdma"]["write"]
