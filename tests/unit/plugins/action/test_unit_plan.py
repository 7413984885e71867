"""What a role installs on a node with its units, as its tasks ask for it."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import memory_guard, power
from ansible_collections.dgxspark.cluster.tests.unit.actions import play, run
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import make

METRICS = {"textfile": "/var/lib/prometheus", "interval_s": 60}


def planned(**chosen: t.Any) -> dict[str, t.Any]:
    return run(
        "unit_plan",
        play({"spark1": {}}, dgxspark_plan=make(2, {"topology": "switch"})),
        profile="spark",
        **chosen,
    )


def test_each_program_has_the_files_and_units_of_its_hardware_class() -> None:
    guard = planned(memory_guard={"parts": ["load"]})
    assert guard["files"] == memory_guard.plan("spark", {}, ["load"])["files"]
    assert planned(power={})["mhz"] == power.plan("spark")["mhz"]
    assert planned(power={"clock_mhz": 2000})["mhz"] == 2000
    assert planned(metrics=METRICS)["output"] == ["/var/lib/prometheus/dgxspark.prom"]


@pytest.mark.parametrize("chosen", [{}, {"power": {}, "metrics": METRICS}])
def test_one_program_is_planned_at_a_time(chosen: dict[str, t.Any]) -> None:
    assert planned(**chosen)["msg"] == "dgxspark.cluster.unit_plan: give one of memory_guard, metrics, power."


def test_metrics_of_a_host_outside_the_fabric_are_refused() -> None:
    made = run("unit_plan", play({"else": {}}, dgxspark_plan={"hosts": {}}), profile="spark", metrics=METRICS)
    assert "else is not in the fabric's plan" in made["msg"]
