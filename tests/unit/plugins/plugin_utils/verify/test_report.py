"""The verdict, the report's form, and the table."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.report import STEPS, StepSpec, build_report
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.values import Place, Result, Step, evidence_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.verdict import causes, locate, verdict
from ansible_collections.dgxspark.cluster.tests.support.properties import examples
from ansible_collections.dgxspark.cluster.tests.unit.verify_inputs import THRESHOLDS, Cluster, statuses, step

SCHEMA = json.loads(
    (pathlib.Path(__file__).parents[5] / "docs" / "schema" / "fabric-report.json").read_text(encoding="utf-8")
)


def valid(report: dict[str, Any]) -> None:
    """Check a report as it is written: what JSON makes of it."""
    written = json.loads(json.dumps({key: value for key, value in report.items() if key != "table"}))
    jsonschema.Draft202012Validator(SCHEMA).validate(written)


def result(status: Any, required: bool = True) -> Result:
    places = (Place("spark1", "p0f0", 0),)
    return Result("x", status, places, "m", "link.down" if status == "fail" else None, required=required)


# --- verdict --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("results", "status"),
    [
        ([], "not applicable"),
        ([("pass", True)], "pass"),
        ([("pass", True), ("not run", False)], "pass"),
        ([("pass", True), ("not run", True)], "not run"),
        ([("not run", False)], "not run"),
        ([("pass", True), ("not run", True), ("fail", True)], "fail"),
    ],
)
def test_a_step_s_status(results: list[tuple[str, bool]], status: str) -> None:
    assert Step("s", "t", True, tuple(result(*given_) for given_ in results)).status == status


def steps_of(*statuses_: tuple[str, bool]) -> list[Step]:
    made = {"pass": (result("pass"),), "fail": (result("fail"),), "not run": (result("not run"),), "not applicable": ()}
    return [Step("s", "t", required, made[status]) for status, required in statuses_]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["pass", "fail", "not run", "not applicable"]), st.booleans()), max_size=8))
def test_passed_means_that_nothing_failed_and_nothing_required_is_open(given_: list[tuple[str, bool]]) -> None:
    said = verdict(steps_of(*given_))
    any_failed = any(status == "fail" for status, _required in given_)
    any_open = any(status == "not run" and required for status, required in given_)
    assert said == ("failed" if any_failed else "incomplete" if any_open else "passed")


def test_a_host_that_is_down_leaves_the_proof_incomplete() -> None:
    cluster = Cluster(3)
    cluster.lose("spark2", "Task failed: Failed to connect to the host via ssh: ssh: No route to host")
    report = cluster.outcome()
    valid(report)
    assert report["verdict"] == "incomplete"
    assert report["headline"].startswith("INCOMPLETE")
    assert "spark2 was not seen: ssh: No route to host" in report["headline"]
    assert "PASS" not in report["headline"]
    assert set(statuses(report).values()) == {"not run"}
    # what could be shown was shown
    assert step(report, "rdma")["summary"].startswith("12 passed")
    assert [host["status"] for host in report["hosts"]] == ["seen", "not seen", "seen"]


def test_a_host_that_is_down_does_not_hide_a_failure() -> None:
    cluster = Cluster(3)
    cluster.lose("spark2")
    cluster.function("spark1", 0)["netdev"]["mtu"] = 1500
    assert cluster.outcome()["verdict"] == "failed"


def test_under_a_limit_the_verdict_is_about_who_is_reached() -> None:
    cluster = Cluster(4)
    cluster.limit("spark1", "spark2")
    report = cluster.outcome()
    valid(report)
    assert report["verdict"] == "passed"
    assert "1 pair of 6" in report["headline"]
    assert {host["status"] for host in report["hosts"]} == {"seen", "outside the limit"}
    assert any("spark3 is outside the limit" in line for line in report["table"])


def test_one_host_alone_proves_no_fabric() -> None:
    cluster = Cluster(4)
    cluster.limit("spark1")
    report = cluster.outcome()
    assert report["verdict"] == "incomplete"
    assert statuses(report) == {"link": "pass", "mtu": "not run", "arp": "not run", "gid": "pass", "rdma": "not run"}


def test_vfs_in_live_pods_need_not_be_shown_here() -> None:
    cluster = Cluster(2)
    for function in (0, 1):
        cluster.vf("spark1", function, 0)["place"] = {"state": "pod", "netns": "/run/netns/cni-1", "pids": 2}
    report = cluster.outcome()
    valid(report)
    assert report["verdict"] == "passed"
    left = [r["message"] for r in step(report, "rdma")["results"] if r["status"] == "not run"]
    assert len(left) == 4
    assert all("rank's preflight tests it" in message for message in left)


def test_when_all_vfs_are_in_pods_nothing_was_proven() -> None:
    cluster = Cluster(2)
    for function in (0, 1):
        for vf in (0, 1):
            cluster.vf("spark1", function, vf)["place"] = {"state": "pod", "netns": "/run/netns/cni-1", "pids": 2}
    report = cluster.outcome()
    assert report["verdict"] == "incomplete"
    assert statuses(report)["rdma"] == "not run"


def test_a_single_spark_has_nothing_to_prove_and_says_so() -> None:
    plan = {
        "topology": "single",
        "hosts": {"spark1": {"name": "spark1", "index": 1, "detected": True, "functions": []}},
    }
    evidence = evidence_of(plan | {"pairs": []}, {"spark1": {"facts": {"kernel": "6.14"}}}, THRESHOLDS)
    report = build_report(evidence, {})["report"]
    valid(report)
    assert report["verdict"] == "passed"
    assert report["headline"].startswith("NOTHING TO PROVE")
    assert set(statuses(report).values()) == {"not applicable"}


def test_a_probe_that_did_not_run_is_said() -> None:
    cluster = Cluster(2)
    cluster.probe()
    del cluster.hosts["spark1"]["probe"]
    cluster.hosts["spark1"]["probe_error"] = "Raw sockets are refused"
    report = build_report(cluster.evidence(), {})["report"]
    valid(report)
    assert report["verdict"] == "incomplete"
    assert "the probe did not run on spark1: Raw sockets are refused" in report["headline"]


def test_a_plan_that_the_nodes_refute_is_a_failure() -> None:
    cluster = Cluster(2)
    cluster.probe()
    cluster.meet()
    evidence = evidence_of(cluster.plan, cluster.hosts, cluster.thresholds, {"plan_fault": "10.100.0.0/24 is taken."})
    report = build_report(evidence, {})["report"]
    valid(report)
    assert report["verdict"] == "failed"
    assert report["causes"][0]["id"] == "plan.refused"
    assert "10.100.0.0/24 is taken" in report["headline"]


# --- causes ---------------------------------------------------------------------------------------------------------


def test_the_deepest_cause_comes_first() -> None:
    cluster = Cluster(2)
    cluster.rdma["write/spark1:p0f0v1>spark2:p0f0v1"] = {"status": "hang", "message": "nothing", "figures": {}}
    cluster.function("spark2", 1)["netdev"] |= {"carrier": False, "operstate": "down"}
    report = cluster.outcome()
    assert [cause["id"] for cause in report["causes"]] == ["link.down", "rdma.hang"]


def test_no_function_is_blamed_when_nothing_is_well() -> None:
    cluster = Cluster(3)
    for host in range(1, 4):
        for peer in range(1, 4):
            for subnet in (0, 1, 8, 9):
                cluster.arp[f"spark{host}", f"10.100.{subnet}.{peer}"] = {"macs": []}
    report = cluster.outcome()
    assert {cause["id"] for cause in report["causes"]} == {"arp.silent"}
    assert not any("p0f" in cause["where"] for cause in report["causes"])
    assert "VLAN" in report["causes"][0]["remedy"]


def test_cables_that_lead_elsewhere_are_looked_for_where_there_is_no_switch() -> None:
    cluster = Cluster(2)
    cluster.plan["topology"] = "direct"
    for host, peer in ((1, 2), (2, 1)):
        for subnet in (0, 1, 8, 9):
            cluster.arp[f"spark{host}", f"10.100.{subnet}.{peer}"] = {"macs": []}
            # no ping comes through either, which is no fault of its own
            cluster.ping[f"spark{host}", f"10.100.{subnet}.{peer}"] = {"small": "no reply", "large": "no reply"}
    (cause,) = cluster.outcome()["causes"]
    assert cause["id"] == "arp.silent" and "mtu.unreachable" in " ".join(cause["consequences"])
    assert "cables" in cause["remedy"] and "cluster.discover" in cause["remedy"] and "VLAN" not in cause["remedy"]


@settings(deadline=None, max_examples=examples(40))
@given(st.data())
def test_whatever_fails_has_a_cause_and_every_failure_is_told_once(data: st.DataObject) -> None:
    """No failure gets lost between causes and their consequences, and none explains itself."""
    cluster = Cluster(3)
    hosts = st.sampled_from(["spark1", "spark2", "spark3"])
    for _n in range(data.draw(st.integers(0, 4))):
        host, function, vf = data.draw(hosts), data.draw(st.integers(0, 1)), data.draw(st.integers(0, 1))
        kind = data.draw(st.sampled_from(["down", "mtu", "address", "missing", "twin", "silent", "mac", "stranded"]))
        netdev = cluster.vf(host, function, vf)["netdev"]
        address = f"10.100.{8 * function + vf}.{host[-1]}"
        if kind == "down":
            cluster.function(host, function)["netdev"]["operstate"] = "down"
        elif kind == "mtu":
            netdev["mtu"] = 1500
        elif kind == "address":
            netdev["ipv4"] = []
        elif kind == "mac":
            netdev["mac"] = "00:00:00:00:00:01"
        elif kind == "stranded":
            cluster.vf(host, function, vf)["place"] = {"state": "stranded", "netns": "/run/netns/x"}
        elif kind == "missing":
            cluster.vf(host, function, vf)["hca"] = None
        else:
            twin = f"02:d6:00:0{host[-1]}:0{1 - function}:0{vf}"
            for peer in ("spark1", "spark2", "spark3"):
                cluster.arp[peer, address] = {"macs": [twin] if kind == "twin" else []}
    report = cluster.outcome()
    valid(report)
    failures = sorted(r["subject"] + ": " + r["cause"] for s in report["steps"] for r in s["results"] if r["cause"])
    told = [f"{subject}: {cause['id']}" for cause in report["causes"] for subject in cause["seen"]]
    told += [text for cause in report["causes"] for text in cause["consequences"]]
    assert sorted(told) == failures
    assert (report["verdict"] == "failed") == bool(failures) == bool(report["causes"])


def test_a_lone_path_does_not_say_which_end_is_at_fault() -> None:
    ends = (Place("spark1", "p0f0", 0), Place("spark2", "p0f0", 0))
    well = (Place("spark1", "p0f1", 0), Place("spark2", "p0f1", 0))
    bad = Result("bad", "fail", ends, "m", "mtu.unreachable")
    results = [bad, Result("good", "pass", well)]
    assert locate(results)[0].blame is None
    (cause,) = causes([Step("mtu", "t", True, tuple(results))])
    assert cause.where == "spark1 - spark2"


# --- form -----------------------------------------------------------------------------------------------------------


def test_the_report_has_its_promised_form_and_what_an_owner_asks_for() -> None:
    report = Cluster(4).outcome()
    valid(report)
    assert report["thresholds"]["id"] == "test"
    assert report["versions"] == {"collection": "0.1.0"}
    assert (report["started"], report["finished"]) == ("2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z")


def test_the_schema_refuses_a_failure_without_a_cause() -> None:
    report = Cluster(2).outcome()
    report["steps"][0]["results"][0]["status"] = "fail"
    with pytest.raises(jsonschema.ValidationError):
        valid(report)


def test_others_add_steps_to_the_list() -> None:
    cluster = Cluster(2)
    cluster.probe()
    cluster.meet()
    more = StepSpec("more", "More", lambda _evidence: [result("not run")])
    made = build_report(cluster.evidence(), {}, [*STEPS, more])["report"]
    valid(made)
    assert made["verdict"] == "incomplete"
    assert list(statuses(made, beyond=True))[-1] == "more"


def test_the_table_is_plain_and_tells_each_pair_and_function() -> None:
    lines = Cluster(4).outcome()["table"]
    assert all(line.isascii() for line in lines)
    rows = [line.split() for line in lines if line.startswith("spark")]
    assert len(rows) == 12
    assert rows[0] == ["spark1", "-", "spark2", "p0f0", "ok", "ok", "106.5", "1.6"]


def test_the_table_shows_failures_first_and_the_worst_figure() -> None:
    cluster = Cluster(4)
    cluster.rdma["write/spark3:p0f1v1>spark4:p0f1v1"] = {"figures": {"gbps": 51.0}}
    lines = cluster.outcome()["table"]
    rows = [line.split() for line in lines if line.startswith("spark")]
    assert rows[0] == ["spark3", "-", "spark4", "p0f1", "ok", "ok", "FAIL", "51", "1.6"]


def test_the_table_of_a_large_cluster_stays_short() -> None:
    lines = Cluster(16, vfs=1).outcome()["table"]
    assert len(lines) < 80
    assert any("more rows" in line for line in lines)


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ({"spark9": {"facts": None}}, "spark9 is not in the plan"),
        ({"spark1": "down"}, "hosts.spark1: a dictionary is needed"),
        ([], "hosts: a dictionary is needed"),
    ],
)
def test_wrong_forms_are_one_clear_error(hosts: Any, words: str) -> None:
    with pytest.raises(CollectionError, match=words):
        evidence_of(Cluster(2).plan, hosts, THRESHOLDS)


@pytest.mark.parametrize("name", ["spark", "lab"])
def test_shipped_thresholds_are_of_hardware_classes_and_work(name: str) -> None:
    entry = knowledge.get("thresholds", name)
    assert name in knowledge.load("hardware")
    cluster = Cluster(3)
    cluster.thresholds = entry
    report = cluster.outcome()
    valid(report)
    assert report["verdict"] == "passed"


def test_hosts_that_did_not_answer_are_in_the_headline_beside_another_cause() -> None:
    cluster = Cluster(4)
    cluster.lose("spark3")
    cluster.lose("spark4")
    cluster.ping["spark1", "10.100.0.2"] = {"small": "ok", "large": "no reply"}
    report = cluster.outcome()
    assert report["verdict"] == "failed" and "2 hosts of 4 did not answer." in report["headline"]
