"""The clock limit: what a node gets, what is refused, and what verify makes of what it reads."""

from __future__ import annotations

import configparser
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge, power
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.report import build_report
from ansible_collections.dgxspark.cluster.tests.unit.verify_inputs import Cluster


@given(st.integers(1400, 3003))
def test_the_unit_sets_the_limit_and_lifts_it(mhz: int) -> None:
    made = power.plan("spark", mhz)
    assert made["mhz"] == mhz and made["enable"] == made["restart"] == ["dgxspark-gpu-clock.service"]
    unit = configparser.ConfigParser()
    unit.read_string(made["files"][0]["content"])
    assert unit["Service"]["ExecStart"].endswith(f"nvidia-smi -lgc 0,{mhz}")
    assert unit["Service"]["ExecStop"].endswith("nvidia-smi -rgc") and unit["Service"]["RemainAfterExit"] == "yes"
    assert "nvidia-persistenced.service" in unit["Unit"]["After"]


def test_the_class_has_a_figure_and_the_owner_may_have_another() -> None:
    assert power.plan("spark")["mhz"] == knowledge.get("health", "spark")["gpu"]["limit_mhz"]
    assert power.limit("spark", 2000) == 2000


@given(st.integers(-10, 1399) | st.integers(3004, 10**6))
def test_a_limit_that_would_look_like_the_low_power_state_is_refused(mhz: int) -> None:
    with pytest.raises(CollectionError, match="spark_power_clock_mhz"):
        power.limit("spark", mhz)


@pytest.mark.parametrize("mhz", ["2000MHz", "", 2000.5, True, [2000], "²000"])
def test_what_is_no_number_of_mhz_is_refused_by_the_variable_s_name(mhz: t.Any) -> None:
    with pytest.raises(CollectionError, match=r"spark_power_clock_mhz: .* is not a whole number of MHz"):
        power.limit("spark", mhz)


def test_the_text_that_e_makes_of_a_number_is_that_number() -> None:
    """As doctor gets it: no role has converted it there."""
    assert power.limit("spark", "2000") == power.limit("spark", 2000) == 2000


def test_a_class_without_a_gpu_has_no_limit() -> None:
    with pytest.raises(CollectionError, match="has no clock limit"):
        power.limit("lab", None)


def test_verify_fails_on_a_limit_that_is_not_set() -> None:
    cluster = Cluster(3)
    unit = "/etc/systemd/system/dgxspark-gpu-clock.service"
    cluster.hosts["spark1"] |= {"power": [], "power_mhz": 2200}
    cluster.hosts["spark2"] |= {
        "power": [{"subject": unit, "what": "file", "before": None, "after": "[Unit]\n"}],
        "power_mhz": 2200,
    }
    cluster.hosts["spark3"] |= {"power_error": "no answer"}
    report = build_report(cluster.evidence(), {})["report"]
    step = next(step for step in report["steps"] if step["id"] == "power")
    assert {r["subject"]: r["status"] for r in step["results"]} == {
        "spark1": "pass",
        "spark2": "fail",
        "spark3": "unknown",
    }
    cause = next(cause for cause in report["causes"] if cause["id"] == "power.limit")
    assert cause["where"] == "spark2" and "2200 MHz" in cause["message"] and "[Unit]" not in cause["message"]


def test_verify_without_a_limit_does_not_ask_for_one() -> None:
    steps = build_report(Cluster(2).evidence(), {})["report"]["steps"]
    assert "power" not in {step["id"] for step in steps}
