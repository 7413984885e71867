"""The guide to the seeds' runs is what the plan says today, and each difference from a seed's own flags has a reason."""

from __future__ import annotations

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import find_profile, recommend
from ansible_collections.dgxspark.cluster.tools import seed_table

LINES = seed_table.lines()
ROWS = knowledge.load("evidence")
named = pytest.mark.parametrize("line", LINES, ids=lambda line: line.entry["id"])


def test_the_guide_is_what_the_plan_says() -> None:
    assert seed_table.GUIDE.read_text(encoding="utf-8") == seed_table.document(LINES), "run tools/seed_table.py"


@named
def test_a_difference_has_a_reason(line: seed_table.Line) -> None:
    assert line.unexplained == []
    assert line.asked, "the engine takes what the seed asked for"


@named
def test_a_seed_and_its_row_agree(line: seed_table.Line) -> None:
    """Figures match the row's, to the digits that the seed prints; a key that the row lacks is a lost figure."""
    if "row" not in line.entry:
        return
    row = ROWS[line.entry["row"]]
    for key, value in line.entry["figures"].items():
        if isinstance(value, dict):
            assert row["measured"][key] == value, key
        else:
            digits = len(str(value).partition(".")[2])
            assert round(row["measured"][key], digits) == pytest.approx(value, abs=10**-digits * 0.51), key
    bad = line.entry["outcome"] in ("crash", "garbage")
    assert (row["verdict"] == line.entry["outcome"]) if bad else (row["verdict"] == "stable")


@named
def test_what_won_may_run_and_what_broke_may_not(line: seed_table.Line) -> None:
    if line.entry["outcome"] in ("crash", "garbage"):
        assert line.planned["verdict"] == "blocked"
    else:
        assert line.planned["verdict"] != "blocked", line.planned["findings"]


@named
def test_a_winner_needs_no_override(line: seed_table.Line) -> None:
    """It is a variant of the profile; a shape may lead to it too."""
    if line.entry["outcome"] == "winner":
        assert "overrides" not in line.entry
        assert line.entry["variant"] in find_profile(line.entry["profile"])["variants"]


@pytest.mark.parametrize(
    ("name", "shape", "seed"),
    [
        ("gemma-4-31b-it", "single", "002-gemma-steps-6"),
        ("gemma-4-31b-it", "throughput", "002-gemma-steps-4"),
        ("glm-4.7-nvfp4", "agents", "000-glm-mtp-triton"),
        ("glm-4.7-nvfp4", "throughput", "000-glm-mtp-cutlass"),
        ("nemotron-3-super-120b-nvfp4", "single", "004-super-ep4"),
        ("nemotron-3-super-120b-nvfp4", "throughput", "004-super-ep4-512k"),
        ("qwen3.5-397b-a17b-nvfp4", "throughput", "000-qwen-mtp-cutlass"),
        ("qwen3.5-122b-a10b-nvfp4-vllm", "single", "003-qwen-mtp3"),
    ],
)
def test_a_shape_leads_to_the_winner(name: str, shape: str, seed: str) -> None:
    (line,) = (line for line in LINES if line.entry["id"] == seed)
    assert recommend(name, shape)["variant"] == line.entry["variant"]
