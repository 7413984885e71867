from __future__ import annotations

import re

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement.table import WIDTH, serving_table
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan

ULTRA = "nemotron-3-ultra-550b-nvfp4"


def lines(free: float, fraction: float) -> list[str]:
    plan = launch_plan(ULTRA, {"free_gib": free}, {"settings": {"mem_fraction_static": fraction}})
    return serving_table(plan)


def gauge(shown: list[str]) -> str:
    found = re.search(r"\[([A-Z.]+)\] of", "\n".join(shown))
    assert found
    return found.group(1)


def test_verdict_comes_first_and_each_finding_has_its_remedy() -> None:
    shown = lines(100.7, 0.85)
    assert shown[1].startswith("verdict   BLOCKED")
    place = next(i for i, line in enumerate(shown) if line.startswith("error     memory.below-floor"))
    assert shown[place + 1].strip().startswith("→ Set mem_fraction_static to")


def test_the_bar_is_the_memory_of_a_node() -> None:
    drawn = gauge(lines(120, 0.8))
    assert len(drawn) == WIDTH
    assert drawn.count("W") == round(83.72 / 120 * WIDTH)
    assert drawn.endswith(".")  # what is left to the host


@pytest.mark.parametrize("fraction", [0.85, 0.99])
def test_a_plan_that_does_not_fit_is_still_drawn(fraction: float) -> None:
    assert len(gauge(lines(100.7, fraction))) <= WIDTH


def test_equal_rows_carry_their_figures_and_ranks_their_command() -> None:
    shown = "\n".join(lines(100.7, 0.9))
    assert "row m113 is equal and was stable (n=1 10.1, n=4 27.9, n=8 42 tokens/s)" in shown
    assert "--mem-fraction-static 0.9" in shown


def test_an_unknown_model_is_said_to_be_unknown() -> None:
    shown = serving_table(launch_plan("apertus-70b-instruct-nvfp4"))
    assert any(line.startswith("memory    unknown") for line in shown)


def test_what_was_not_judged_stands_at_the_top() -> None:
    assert (
        lines(100.7, 0.9)[2] == "judged    flags, rules, memory, speed; not judged: platform, no kernel read or given"
    )
    cluster = {"platform": {"kernel": "6.17.0-1032-nvidia"}}
    unknown = serving_table(launch_plan("apertus-70b-instruct-nvfp4", cluster))[2]
    assert "not judged: rules, not those of the model, no facts of this model; memory, no facts" in unknown
    assert unknown.startswith("judged    flags, platform;") and "speed, no" in unknown
    other = launch_plan(ULTRA, cluster, {"engine": {"version": "0.99.0", "versions": ""}})
    assert other["not_judged"]["flags"] == "no table of sglang 0.99.0"
    assert other["not_judged"]["speed"] == "no equal row of this model, estimated only"
    assert not other["not_judged"]["platform"]
