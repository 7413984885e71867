"""A level's energy: the nodes' readings, whose clocks differ, cut to when the level ran; and what is said where that cannot be done."""

from __future__ import annotations

import json
import typing as t

import jsonschema
import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.power import read_power
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import energy
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import bench as html
from ansible_collections.dgxspark.cluster.tests.unit.actions import play, run
from ansible_collections.dgxspark.cluster.tests.unit.bench_reports import REPORT
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT

Plain = dict[str, t.Any]
SCHEMA = json.loads((ROOT / "docs" / "schema" / "bench-report.json").read_text("utf-8"))
BEGAN = 1767323050.0  # when the report's only level begins; it takes ten seconds and makes 30 tokens


def node(watts: float, ahead_s: float = 0.0, every: float = 1.0) -> energy.Readings:
    count = int(30 / every)
    samples = [(BEGAN - 10 + number * every + ahead_s, watts) for number in range(count)]
    return energy.readings({"offset_s": ahead_s, "samples": samples[:1]}, {"samples": samples})


def level(report: Plain) -> Plain:
    (found,) = report["workloads"][0]["levels"]
    return t.cast(Plain, found)


def test_two_nodes_add_up_whatever_their_clocks_say() -> None:
    made = energy.joined(REPORT, {"spark1": node(40.0), "spark2": node(20.0, ahead_s=-5000.0)})
    jsonschema.Draft202012Validator(SCHEMA).validate(made)
    found = level(made)["energy"]
    assert found == {"joules": 600.0, "watts": 60.0, "tokens_per_joule": 0.05, "readings": 22}
    assert made["power"] == {"hosts": ["spark1", "spark2"], "problem": None}
    page = html.page(made)
    assert "tok/J" in page and "0.05" in page and "spark1, spark2" in page


def test_only_the_level_counts_and_a_slope_is_followed() -> None:
    """400 W before and after it; within, the power rises from 0 to 100 W."""
    samples = [(BEGAN + at, 10.0 * at) for at in range(11)]
    outside = [(BEGAN + at, 400.0) for at in (-3, -2, 12, 13)]
    found = energy.Readings(0.0, tuple(sorted(samples + outside)), "")
    assert level(energy.joined(REPORT, {"spark1": found}))["energy"]["joules"] == pytest.approx(500)


def test_a_pods_report_has_the_clock_of_its_node() -> None:
    ahead = 300.0
    nodes = {"spark1": node(40.0), "spark2": node(40.0, ahead)}
    made = energy.joined(
        {**REPORT, "workloads": [{"name": "chat", "levels": [shifted(ahead)]}]}, nodes, nodes["spark2"]
    )
    assert level(made)["energy"]["joules"] == 800.0
    unknown = energy.Readings(None, (), "nvidia-smi is not installed")
    made = energy.joined(REPORT, nodes, unknown)
    assert level(made)["energy"] is None and "nvidia-smi is not installed" in made["power"]["problem"]


def shifted(seconds: float) -> Plain:
    minutes = int(seconds // 60)
    found = level(REPORT)
    return {**found, **{key: found[key].replace("03:04", f"03:{4 + minutes:02}") for key in ("began", "ended")}}


@pytest.mark.parametrize(
    ("spark2", "why"),
    [
        (energy.readings({"problem": "nvidia-smi is not installed", "samples": []}, {}), "spark2: nvidia-smi is not installed"),
        (energy.readings({"msg": "no route to host"}, {}), "spark2: no route to host"),
        (energy.readings({}, {}), "spark2: its GPU's power was not read"),
        (node(20.0, every=8.0), "spark2: 1 readings of the power in the 10.0 s of this level, 3 are needed"),
        (energy.Readings(0.0, tuple((BEGAN + at, 1.0) for at in (0, 1, 2)), "the readings end after 60 s"), "spark2: the readings end"),
        (energy.Readings(0.0, tuple((BEGAN + at, 1.0) for at in (1, 2, 8, 9)), ""), "spark2: no reading of the power for more than 5 s"),
    ],
)  # fmt: skip
def test_a_node_that_is_not_read_costs_the_figure_and_is_named(spark2: energy.Readings, why: str) -> None:
    made = energy.joined(REPORT, {"spark1": node(40.0), "spark2": spark2})
    jsonschema.Draft202012Validator(SCHEMA).validate(made)
    assert level(made)["energy"] is None
    assert made["power"]["problem"].startswith(f"chat, 1 at once: {why}")
    assert f"Tokens per joule: not known. {made['power']['problem']}." in html.page(made).replace("&#39;", "'").replace(
        "\xa0", " "
    )


def test_a_reason_that_all_levels_have_is_said_once() -> None:
    levels = [{**level(REPORT), "n": n} for n in (1, 4, 8)]
    unread = energy.readings({"problem": "nvidia-smi is not installed", "samples": []}, {})
    made = energy.joined({**REPORT, "workloads": [{"name": "chat", "levels": levels}]}, {"spark1": unread})
    assert made["power"]["problem"] == "chat, 1, 4, 8 at once: spark1: nvidia-smi is not installed"


def test_a_level_that_was_not_asked_and_a_run_without_nodes_have_none() -> None:
    asked_nothing = {**level(REPORT), "ended": level(REPORT)["began"]}
    made = energy.joined({**REPORT, "workloads": [{"name": "chat", "levels": [asked_nothing]}]}, {"spark1": node(40.0)})
    assert level(made)["energy"] is None and "nothing was asked" in made["power"]["problem"]
    assert energy.joined(REPORT, {})["power"] == {"hosts": [], "problem": "no node of the model is known"}


LIES: list[t.Any] = [
    "x", None, 7, [], ["a"], [[1]], [[1, 2, 3]], [[True, 5.0]], [[BEGAN, float("inf")], [float("nan"), 5.0]], [[BEGAN, -5.0]],
    [[BEGAN, 1e12]], [[10**300, 5]], [["1", "2"]], [[BEGAN, 5.0]] * 50, {"a": 1},
]  # fmt: skip


@pytest.mark.parametrize("samples", LIES, ids=range(len(LIES)))
def test_what_no_gpu_reports_is_no_reading(samples: t.Any) -> None:
    variables = play({
        "spark1": {"once": {"changed": False, "offset_s": 0.0, "samples": samples},
                   "whole": {"changed": False, "samples": samples, "problem": "\x1b[2J<b>" + "x" * 5000}},
    })  # fmt: skip
    made = run("bench_energy", variables, bench=REPORT, hosts=["spark1"], once="once", whole="whole")
    if made.get("failed"):  # numbers that no node has are refused
        assert "a number that no node has" in made["msg"]
        return
    jsonschema.Draft202012Validator(SCHEMA).validate(made["bench"])
    assert level(made["bench"])["energy"] is None
    said = "\n".join(made["table"])
    assert "\x1b" not in said and len(said) < 2000


def test_readings_go_on_while_the_file_is_there_and_end_by_themselves(tmp_path: t.Any) -> None:
    (tmp_path / "on").touch()
    now = [100.0]

    def gpus(_argv: t.Sequence[str]) -> tuple[int, str, str]:
        if now[0] >= 103:
            (tmp_path / "on").unlink(missing_ok=True)
        return 0, "NVIDIA GB10, P0, 2400, 3003, 40.5, 50, 96\n", ""

    def wait(seconds: float) -> None:
        now[0] += seconds

    found, problem = read_power(gpus, str(tmp_path / "on"), 60, 1.0, lambda: now[0], wait)
    assert (found, problem) == ([(100.0, 40.5), (101.0, 40.5), (102.0, 40.5), (103.0, 40.5)], "")
    (tmp_path / "on").touch()
    now[0] = 0.0
    found, problem = read_power(gpus, str(tmp_path / "on"), 2, 1.0, lambda: now[0], wait)
    assert len(found) == 3 and problem == "the readings end after 2 s"
    assert read_power(gpus, clock=lambda: 5.0) == ([(5.0, 40.5)], "")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((127, "", "nvidia-smi: not found"), "nvidia-smi is not installed"),
        ((0, "NVIDIA GB10, P0, 2400, 3003, [N/A], 50, 96\n", ""), "nvidia-smi reports no power for this GPU"),
        ((9, "NVIDIA-SMI has failed", ""), "nvidia-smi: NVIDIA-SMI has failed"),
    ],
)
def test_a_gpu_without_a_reading_is_said(answer: tuple[int, str, str], why: str) -> None:
    assert read_power(lambda _argv: answer) == ([], why)
