from __future__ import annotations

import dataclasses
import pathlib

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import evidence

ROWS = evidence.load_rows()
BY_ID = {row.id: row for row in ROWS}


def test_all_measured_rows_are_there() -> None:
    assert len(ROWS) == 156
    assert sum(row.verdict == "stable" for row in ROWS) == 99
    assert sum(row.verdict == "crash" for row in ROWS) == 49
    assert sum(row.verdict == "garbage" for row in ROWS) == 8


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_is_evidence_for_its_own_configuration(row: evidence.Row) -> None:
    found = evidence.witness(row.run, ROWS)
    assert row.id in {c.row.id for c in found.equal}
    assert found.verdicts == {row.verdict}


def test_a_near_row_says_what_differs() -> None:
    stable = BY_ID["m065"].run
    eager = dataclasses.replace(
        stable, settings={**stable.settings, "disable_cuda_graph": True, "cuda_graph_max_bs": 8}
    )
    found = evidence.witness(eager, [BY_ID["m065"]])
    assert not found.equal
    assert found.near[0].differs == {"disable_cuda_graph": (False, True)}
    assert found.near[0].unstated == ("cuda_graph_max_bs",)


def test_what_decides_must_be_stated_by_both() -> None:
    row = BY_ID["m154"]  # FP4 GEMM and graphs of this row are not stated
    told = dataclasses.replace(row.run, settings={**row.run.settings, "fp4_gemm_backend": "flashinfer_cutlass"})
    assert evidence.compare(told, row).differs == {"fp4_gemm_backend": (None, "flashinfer_cutlass")}


def test_speculation_is_off_where_a_row_does_not_state_it() -> None:
    plain = BY_ID["m089"]
    fast = dataclasses.replace(plain.run, settings={**plain.run.settings, "speculative_algorithm": "NEXTN"})
    assert "speculative_algorithm" in evidence.compare(fast, plain).differs


@pytest.mark.parametrize("key", ["nodes", "tp", "ep"])
def test_another_topology_is_not_equal(key: str) -> None:
    row = BY_ID["m009"]
    assert key in evidence.compare(dataclasses.replace(row.run, **{key: 2}), row).differs


@pytest.mark.parametrize(
    ("model", "shape", "cases"),
    [
        ("google/gemma-4-31B-it", "single", {"m011"}),
        ("google/gemma-4-31B-it", "agents", {"m011"}),
        ("google/gemma-4-31B-it", "throughput", {"m009"}),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", "single", {"m107"}),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", "throughput", {"m056", "m108"}),
        ("nvidia/Qwen3.5-397B-A17B-NVFP4", "single", {"m099"}),
        ("nvidia/Qwen3.5-397B-A17B-NVFP4", "agents", {"m099"}),
        ("nvidia/Qwen3.5-397B-A17B-NVFP4", "throughput", {"m099"}),
        ("nvidia/GLM-4.7-NVFP4", "single", {"m154"}),
        ("nvidia/GLM-4.7-NVFP4", "agents", {"m154"}),
        ("nvidia/GLM-4.7-NVFP4", "throughput", {"m155"}),
    ],
)
def test_the_winner_of_each_shape(model: str, shape: str, cases: set[str]) -> None:
    row = evidence.recommend_row(model, shape, ROWS).row
    assert row is not None
    assert row.id in cases


def test_the_compromise_states_what_it_gives_away() -> None:
    found = evidence.recommend_row("google/gemma-4-31B-it", "mixed", ROWS)
    assert found.row is not None
    assert found.row.id == "m011"
    assert found.losses == {"n1": 0.0, "n4": 0.0, "n8": pytest.approx(1 - 146.11 / 153.24, abs=1e-4)}
    assert "5 % at n = 8" in found.reason


def test_without_a_row_it_says_so() -> None:
    found = evidence.recommend_row("nobody/nothing", "single", ROWS)
    assert found.row is None
    assert "nothing is proven" in found.reason


def test_garbage_never_wins() -> None:
    row = dataclasses.replace(BY_ID["m119"], id="x")
    assert evidence.recommend_row(row.run.model, "throughput", [row]).row is None


def test_an_unknown_shape_is_refused() -> None:
    with pytest.raises(FabricError, match=r"'burst' is not one of single, agents, throughput, mixed"):
        evidence.recommend_row("m", "burst", ROWS)


@pytest.mark.parametrize("row", [BY_ID["m099"], BY_ID["m156"], BY_ID["m119"]], ids=lambda row: row.id)
def test_what_goes_out_comes_in(row: evidence.Row, tmp_path: pathlib.Path) -> None:
    out = evidence.row_to_export(row.run, f"mine-{row.id}", row.verdict, row.measured, row.source, row.note)
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / "mine.yml").write_text(yaml.safe_dump({"entries": [out]}), encoding="utf-8")
    loaded = {r.id: r for r in evidence.load_rows([str(tmp_path)])}
    assert loaded[f"mine-{row.id}"].run == row.run
    assert loaded[f"mine-{row.id}"].verdict == row.verdict
    assert len(loaded) == 157


def test_rows_carry_what_the_seeds_state_beside_the_logs() -> None:
    """Times to the first token, answers that failed, acceptance, and figures that a log leaves out."""
    assert {i: BY_ID[i].measured["ttft_ms"] for i in ("m042", "m154", "m113")} == {
        "m042": {"n1": 630},
        "m154": {"n1": 700},
        "m113": {"n8": 1950},
    }
    assert {i: BY_ID[i].measured["requests"] for i in ("m056", "m057", "m107", "m060")} == {
        "m056": {"n8": {"ok": 8, "failed": 0}},
        "m057": {"n8": {"ok": 7, "failed": 1}},
        "m107": {"n8": {"ok": 7, "failed": 1}},
        "m060": {"n1": {"ok": 0, "failed": 1}},
    }
    assert {i: BY_ID[i].measured["n4"] for i in ("m057", "m058")} == {"m057": 124.0, "m058": 120.4}
    assert (BY_ID["m009"].measured["accept_rate"], BY_ID["m009"].measured["accept_len"]) == (0.52, 3.05)
    assert "23.4" in BY_ID["m009"].note and "promotes NEXTN" in BY_ID["m009"].note


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_remark_on_failed_answers_is_counted_too(row: evidence.Row) -> None:
    requests = row.measured.get("requests", {})
    assert all(sum(counted.values()) == int(n[1:]) for n, counted in requests.items())
    if "repetition guard" in row.note:
        assert any(counted["failed"] for counted in requests.values())


def test_a_bad_row_of_an_owner_is_one_error_with_file_and_row(tmp_path: pathlib.Path) -> None:
    good = evidence.row_to_export(BY_ID["m099"].run, "good", "stable", {"n1": 40.0}, ["own bench"])
    bad = {**good, "id": "bad", "verdict": "fine"}
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / "mine.yml").write_text(yaml.safe_dump({"entries": [good, bad]}), encoding="utf-8")
    with pytest.raises(knowledge.KnowledgeError, match=r"mine\.yml: entries\.1 \(id bad\): verdict: 'fine'"):
        evidence.load_rows([str(tmp_path)])


def test_a_bad_figure_is_not_exported() -> None:
    with pytest.raises(knowledge.KnowledgeError, match=r"row 'x': measured\.n1"):
        evidence.row_to_export(BY_ID["m099"].run, "x", "stable", {"n1": -1.0}, ["own bench"])
