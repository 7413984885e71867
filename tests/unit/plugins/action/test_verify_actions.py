"""The actions of verify and of the doctor: evidence is read from the play's hosts, and malformed input is one clear failure."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.dgxspark.cluster.tests.unit.actions import play, run
from ansible_collections.dgxspark.cluster.tests.unit.verify_inputs import Cluster

STARTED = "2026-01-01T00:00:00Z"


def of(cluster: Cluster, **more: t.Any) -> dict[str, t.Any]:
    return play(
        {host: {"__verify_seen": seen} for host, seen in cluster.hosts.items()}, dgxspark_plan=cluster.plan, **more
    )


def test_schedule_then_report() -> None:
    cluster = Cluster(4)
    first = run("fabric_schedule", of(cluster))
    assert len(first["probes"]["spark1"]["ping"]) == 12
    assert first["rounds"] == []
    cluster.probe()
    second = run("fabric_schedule", of(cluster))
    assert [sorted(meeting) for meeting in second["rounds"]] == [["spark1", "spark2", "spark3", "spark4"]] * 3
    cluster.meet()
    made = run("fabric_report", of(cluster), started=STARTED, mode="quick")
    assert json.loads(json.dumps(made["report"]))["verdict"] == "passed"
    assert made["report"]["started"] == STARTED < made["report"]["finished"]
    assert made["report"]["versions"]["ansible_core"]
    assert made["report"]["versions"]["collection"]
    assert made["table"][0] == made["report"]["headline"]
    # The mode says what is required: here not both functions of a pair were tested at once.
    assert run("fabric_report", of(cluster), started=STARTED)["report"]["verdict"] == "incomplete"


def test_a_host_that_the_run_did_not_come_to_is_a_failure_and_one_outside_the_plan_is_none() -> None:
    cluster = Cluster(2)
    variables = of(cluster)
    variables["hostvars"] |= {"spark2": {}, "else": {}}
    variables["ansible_play_hosts_all"] = ["spark1", "spark2", "else"]
    made = run("fabric_report", variables, started=STARTED)
    assert made["report"]["verdict"] != "passed"
    assert "an earlier part of this run failed on it" in json.dumps(made["report"])


def test_a_wrong_form_is_one_failure_with_the_name_of_the_action() -> None:
    cluster = Cluster(2)
    cluster.hosts["spark1"] = ["spark1"]
    made = run("fabric_schedule", of(cluster))
    assert made["failed"]
    assert made["msg"].startswith("dgxspark.cluster.fabric_schedule: hosts.spark1: a dictionary is needed")
    made = run("fabric_report", of(Cluster(2)), started=STARTED, results={"ncl": {}})
    assert "there is no step 'ncl'" in made["msg"]


def test_the_doctor_reads_what_was_registered_of_each_host() -> None:
    cluster = Cluster(3)
    hostvars: dict[str, t.Any] = {
        host: {"dgxspark_roce": seen["facts"], "__doctor_health": {"msg": "no root"}}
        for host, seen in cluster.hosts.items()
    }
    hostvars["spark2"] = {
        "__sriov_roce_read": {"unreachable": True, "msg": "timed out"},
        "__doctor_health": {"skipped": True},
    }
    hostvars["spark3"] = {}
    made = run("doctor_report", play(hostvars, dgxspark_plan=cluster.plan), started=STARTED)
    hosts = {host["name"]: host for host in made["report"]["hosts"]}
    assert [hosts[name]["status"] for name in hosts] == ["seen", "not seen", "not seen"]
    assert hosts["spark2"]["reason"] == "timed out"
    assert hosts["spark3"]["reason"] == "an earlier part of this run failed on it"
    assert "no root" in json.dumps(made["report"])
