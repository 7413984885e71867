"""The filters' fronts: plain values in and out, and Ansible's error for ours."""

from __future__ import annotations

import json

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.dgxspark.cluster.plugins.filter import fabric_report, fabric_schedule
from ansible_collections.dgxspark.cluster.tests.unit.verify_inputs import Cluster

schedule = fabric_schedule.FilterModule().filters()["fabric_schedule"]
report = fabric_report.FilterModule().filters()["fabric_report"]


def test_schedule_then_report() -> None:
    cluster = Cluster(4)
    first = schedule(cluster.plan, cluster.hosts, cluster.thresholds)
    assert len(first["probes"]["spark1"]["ping"]) == 12
    assert first["rounds"] == []
    cluster.probe()
    second = schedule(cluster.plan, cluster.hosts, cluster.thresholds)
    assert [sorted(meeting) for meeting in second["rounds"]] == [["spark1", "spark2", "spark3", "spark4"]] * 3
    cluster.meet()
    meta = {"started": "2026-01-01T00:00:00Z", "versions": {"ansible_core": "2.19.0"}}
    made = report(cluster.plan, cluster.hosts, cluster.thresholds, meta)
    assert json.loads(json.dumps(made["report"]))["verdict"] == "passed"
    assert made["report"]["versions"]["ansible_core"] == "2.19.0"
    assert made["report"]["versions"]["collection"]
    assert made["table"][0] == made["report"]["headline"]


def test_a_wrong_form_is_one_error_with_the_filter_s_name() -> None:
    with pytest.raises(AnsibleFilterError, match="fabric_schedule: hosts: a dictionary is needed"):
        schedule(Cluster(2).plan, ["spark1"], {})
