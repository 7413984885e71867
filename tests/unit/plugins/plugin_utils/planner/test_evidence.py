from __future__ import annotations

import dataclasses
import pathlib
import re
import typing as t

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.benchmarks import verdicts
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement import (
    evidence,
    knowledge_base,
    verdict,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model import model
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile import profile
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.vocabulary import flag_table
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.vocabulary.settings import SET_BY_PLAN
from ansible_collections.dgxspark.cluster.tests.support.properties import examples

KNOWN = knowledge_base.base()
ROWS = evidence.load_rows()
BY_ID = {row.id: row for row in ROWS}


def test_all_measured_rows_are_there() -> None:
    assert len(ROWS) == 156 + 7 + 37  # the seeds' and the first stack's; NVIDIA's and an owner's of newer engines
    assert sum(row.verdict == "stable" for row in ROWS) == 99 + 7 + 36
    assert sum(row.verdict == "crash" for row in ROWS) == 49 + 1
    assert sum(row.verdict == "garbage" for row in ROWS) == 8


def witnessed(name: str, free: dict[str, t.Any] | None = None, **changes: t.Any) -> evidence.MatchingRows:
    """What the rows say about a row's own configuration with changed settings, image or spread."""
    row = BY_ID[name]
    own = verdicts.profile_of(row, verdicts.entry_of(row))
    settings = {**row.run.settings, **changes.pop("settings", {})}
    own = dataclasses.replace(own, settings={k: v for k, v in settings.items() if v is not None}, **changes)
    return verdict.judge(own, KNOWN).rows_seen


def of(found: evidence.MatchingRows, name: str) -> evidence.Comparison:
    return next(c for c in (*found.equal, *found.near) if c.row.id == name)


# Rows that do not state what they ran with: no configuration can be known to be equal.
UNSTATED = {"m154": "its image is not stated", "m155": "its image is not stated"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_is_evidence_for_its_own_configuration(row: evidence.Row) -> None:
    found = witnessed(row.id)
    assert (row.id in {c.row.id for c in found.equal}) is (row.id not in UNSTATED)


def test_a_near_row_says_what_differs() -> None:
    found = of(witnessed("m065", settings={"disable_cuda_graph": True}), "m065")
    assert not found.equal
    assert found.differs == {"disable_cuda_graph": (False, True)}


def test_what_decides_must_be_stated_by_the_row() -> None:
    assert of(witnessed("m154"), "m154").differs["fp4_gemm_backend"][0] == "not stated"


def test_an_unknown_image_is_no_equal_image() -> None:
    row = BY_ID["m099"]
    unnamed = witnessed("m099", engine=profile.Engine("sglang", row.run.version))
    assert of(unnamed, "m099").differs == {"image": (row.run.image, None)}


def test_what_the_engine_makes_of_both_is_compared() -> None:
    """NEXTN is EAGLE there, and top-k 1 makes the draft tokens steps + 1: neither makes a difference."""
    assert of(witnessed("m099", settings={"speculative_algorithm": "EAGLE"}), "m099").equal
    assert of(witnessed("m099", settings={"speculative_num_draft_tokens": 7}), "m099").equal


def test_a_version_s_default_counts_where_the_row_states_nothing_and_is_said() -> None:
    found = of(witnessed("m118", settings={"cuda_graph_max_bs": 512}), "m118")
    assert found.equal
    assert found.assumed == {"cuda_graph_max_bs": 512}
    assert of(witnessed("m118", settings={"cuda_graph_max_bs": 8}), "m118").differs == {"cuda_graph_max_bs": (512, 8)}


def test_speculation_is_off_where_a_row_does_not_state_it() -> None:
    fast = {"speculative_algorithm": "NEXTN", "speculative_num_steps": 3, "speculative_eagle_topk": 1}
    assert "speculative_algorithm" in of(witnessed("m089", settings=fast), "m089").differs


@pytest.mark.parametrize(
    "change", [{"nodes": 2}, {"parallelism": model.Parallelism(2, 2, 1)}, {"parallelism": model.Parallelism(4, 1, 4)}]
)
def test_another_topology_is_not_equal(change: dict[str, t.Any]) -> None:
    assert not of(witnessed("m009", **change), "m009").equal


HARMLESS = sorted(key for key, when in KNOWN.standard.harmless.items() if when is None)
OTHER_VALUES: dict[str, t.Any] = {
    "attention_backend": ["flashinfer", "triton"], "moe_runner_backend": ["triton", "cutlass", "flashinfer_cutlass"],
    "fp4_gemm_backend": ["flashinfer_cutlass", "flashinfer_cudnn"], "disable_cuda_graph": [True, False],
    "kv_cache_dtype": ["fp8_e4m3", "auto", "fp8_e5m2"], "mem_fraction_static": [0.55, 0.83], "context_length": [4096, 131072],
    "cuda_graph_max_bs": [4, 16], "enable_eplb": [True], "disable_radix_cache": [True], "disable_deep_gemm": [True, False],
    "enable_torch_compile": [True], "max_running_requests": [4, 64], "page_size": [16], "cuda_graph_bs": [[1, 2, 4]],
    "chunked_prefill_size": [2048], "speculative_num_steps": [1, 2], "nccl_transport": ["socket"],
    "max_mamba_cache_size": [12], "quantization": ["fp8"], "num_continuous_decode_steps": [4],
}  # fmt: skip
CHANGES = [(key, value) for key, values in OTHER_VALUES.items() for value in values]


@settings(max_examples=examples(300))
@given(st.sampled_from([row for row in ROWS if row.run.engine == "sglang"]), st.sampled_from(CHANGES))
def test_no_row_proves_what_runs_otherwise(row: evidence.Row, change: tuple[str, t.Any]) -> None:
    """Any single change that reaches the engine: the result is not proven by that row."""
    key, value = change
    own = verdicts.profile_of(row, verdicts.entry_of(row))
    changed = dataclasses.replace(own, settings={**own.settings, key: value})
    before, after = verdict.judge(own, KNOWN), verdict.judge(changed, KNOWN)
    if before.runs.settings == after.runs.settings or key in KNOWN.standard.harmless:
        return  # the engine resolves both alike, or the list's own condition decides
    assert row.id not in {c.row.id for c in after.rows_seen.equal}


def other_value(spec: t.Mapping[str, t.Any]) -> t.Any:
    """Return a value that a flag takes and that is not its default; None where its type offers no obvious one."""
    offered = [*spec.get("choices", ()), *spec.get("known", ()), True, False, 7, 0.137, "other"]
    default = False if spec["type"] == "switch" else spec.get("default")
    takes = (
        v
        for v in offered
        if v != default and not flag_table.fault(v, flag_table.expected(spec)) and flag_table.accepted(v, spec)
    )
    found = None if spec["type"] == "json" else next(takes, None)
    return [found] if found is not None and flag_table.expected(spec).startswith("list of ") else found


@settings(max_examples=examples(300))
@given(st.sampled_from(ROWS), st.data())
def test_no_row_proves_any_other_flag(row: evidence.Row, data: st.DataObject) -> None:
    """Each flag of the row's engine version, set to a non-default value: not harmless, so not this row's run."""
    parser = KNOWN.tables.parser(row.run.engine, row.run.version)
    assert parser
    dialect = KNOWN.tables.dialect(row.run.engine, row.run.version)
    flag = data.draw(st.sampled_from(sorted(parser.table["flags"])))
    spec = parser.table["flags"][flag]
    key, value = flag.replace("-", "_"), other_value(spec)
    if dialect.named(key) != (key, "") or key in {*SET_BY_PLAN, *KNOWN.standard.harmless} or value is None:
        return
    own = verdicts.profile_of(row, verdicts.entry_of(row))
    before = verdict.judge(own, KNOWN)
    if before.runs.settings.get(key) == value:
        return
    after = verdict.judge(dataclasses.replace(own, settings={**own.settings, key: value}), KNOWN)
    if after.runs.by.get(key) == "asked":  # else the engine overrides it
        assert row.id not in {c.row.id for c in after.rows_seen.equal}


@pytest.mark.parametrize("key", HARMLESS)
def test_what_is_harmless_makes_no_difference(key: str) -> None:
    value: t.Any = {"int": 3, "bool": True}.get(KNOWN.tables.settings.get(key, {}).get("type", ""), "other")
    assert of(witnessed("m099", settings={key: value}), "m099").equal


def test_fewer_requests_at_once_are_the_row_s_as_long_as_it_was_measured_with_as_many() -> None:
    assert BY_ID["m118"].run.settings["max_running_requests"] == 32
    assert of(witnessed("m118", settings={"max_running_requests": 8}), "m118").equal
    assert not of(witnessed("m118", settings={"max_running_requests": 4}), "m118").equal
    assert not of(witnessed("m118", settings={"max_running_requests": 48}), "m118").equal


def test_blemishes_of_a_row_are_told() -> None:
    row = dataclasses.replace(BY_ID["m099"], requests={"n8": {"ok": 7, "failed": 1}}, note="a note")
    assert row.blemishes == ("1 of 8 requests failed at n = 8",)
    against = dataclasses.replace(row, caveat=True)
    assert against.blemishes == ("1 of 8 requests failed at n = 8", "a note")


def test_the_data_says_which_notes_speak_against_a_row() -> None:
    assert BY_ID["m111"].note and BY_ID["m018"].note and BY_ID["m011"].note  # how the rows came about
    assert not (BY_ID["m111"].blemishes or BY_ID["m018"].blemishes or BY_ID["m011"].blemishes)
    assert all(BY_ID[name].blemishes for name in ("m009", "m056", "m062", "m107", "m154"))


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
    assert "there is none to choose by" in found.reason


def test_garbage_never_wins() -> None:
    row = dataclasses.replace(BY_ID["m119"], id="x")
    assert evidence.recommend_row(row.run.model, "throughput", [row]).row is None


def test_an_unknown_shape_is_refused() -> None:
    with pytest.raises(CollectionError, match=r"'burst' is not one of single, agents, throughput, mixed"):
        evidence.recommend_row("m", "burst", ROWS)


@pytest.mark.parametrize("row", [BY_ID["m099"], BY_ID["m156"], BY_ID["m119"]], ids=lambda row: row.id)
def test_what_goes_out_comes_in(row: evidence.Row, tmp_path: pathlib.Path) -> None:
    out = evidence.row_to_export(row.run, f"mine-{row.id}", row.verdict, row.measured, row.source, row.note)
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / "mine.yml").write_text(yaml.safe_dump({"entries": [out]}), encoding="utf-8")
    loaded = {r.id: r for r in evidence.load_rows([str(tmp_path)])}
    assert loaded[f"mine-{row.id}"].run == row.run
    assert loaded[f"mine-{row.id}"].verdict == row.verdict
    assert len(loaded) == len(ROWS) + 1


def test_rows_carry_what_the_seeds_state_beside_the_logs() -> None:
    """Times to first token, failed answers, acceptance, and figures that a log leaves out."""
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


@pytest.mark.parametrize("row", [row for row in ROWS if row.verdict != "stable"], ids=lambda row: row.id)
def test_the_way_out_of_a_bad_row_leads_out(row: evidence.Row) -> None:
    """The remedy names the nearest stable row: with that row's configuration, this row no longer blocks."""
    own = verdicts.profile_of(row, verdicts.entry_of(row))
    bad = next(f for f in verdict.judge(own, KNOWN).findings if f.id == f"evidence.{row.id}")
    named = re.search(r"Row ([a-z][\w.-]+) is the nearest", bad.remedy)
    assert named, bad.remedy
    way_out = verdict.judge(verdicts.profile_of(BY_ID[named.group(1)], verdicts.entry_of(row)), KNOWN)
    assert f"evidence.{row.id}" not in {f.id for f in way_out.findings}
    found = verdict.judge(own, KNOWN).rows_seen.way_out
    assert found and all(f"{key} " in bad.remedy for key in found.differs)
