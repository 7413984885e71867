from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import jmespath
import pytest
import yaml

from ansible_collections.dgxspark.cluster.benchmarks import verdicts
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement import (
    evidence,
    facts,
    knowledge_base,
    rules,
    verdict,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile import profile

ROWS = evidence.load_rows()
KNOWN = knowledge_base.base()
ENTRIES = {row.id: verdicts.entry_of(row) for row in ROWS}


@pytest.fixture(scope="module")
def noise() -> set[str]:
    stable = sum(row.verdict == "stable" for row in ROWS)
    return {rule for rule, count in verdicts.noisy(ROWS, KNOWN).items() if count > verdicts.SHARE * stable}


@pytest.mark.parametrize("row", [row for row in ROWS if row.verdict == "stable"], ids=lambda row: row.id)
def test_no_rule_contradicts_a_stable_row(row: evidence.Row) -> None:
    found = verdicts.judged(row, ENTRIES[row.id], KNOWN)
    assert found.verdict != "blocked", [f.id for f in found.findings if f.severity == "error"]


def test_rules_alone(noise: set[str]) -> None:
    table = verdicts.confusion(ROWS, KNOWN, noise)
    assert table.caught >= 0.95 * table.bad
    assert table.crashes_blocked >= 0.8 * table.crashes
    assert table.garbage_blocked == table.garbage == 8
    assert table.stable_blocked == 0
    assert table.passed >= 0.9 * table.stable


def test_rules_with_a_reason_alone(noise: set[str]) -> None:
    """Without the rules that are based only on a summary of somebody's results."""
    reduced = dataclasses.replace(KNOWN, rules=tuple(rule for rule in KNOWN.rules if not rule.summary))
    table = verdicts.confusion(ROWS, reduced, noise)
    assert table.stable_blocked == 0
    assert table.caught >= 0.95 * table.bad


# Stable rows that prove nothing, with the reason.
NOT_PROVEN = {
    "m154": ("unproven", "its image is not stated"),
    "m155": ("unproven", "its image is not stated"),
    "m080": (
        "blocked",
        "m082 ran with the same resolved settings and crashed: 0.5.10 has no prefill graphs for this model",
    ),
    "m085": ("blocked", "m083 ran with the same resolved settings and crashed, likewise"),
    "m107": ("unproven", "one of its eight answers was ended"),
    **dict.fromkeys(
        ("m057", "m058", "m060", "m061"), ("unproven", "one configuration; two of its runs lost an answer")
    ),
}


def test_with_evidence_every_row_is_told_right() -> None:
    for row in ROWS:
        found = verdicts.judged(row, ENTRIES[row.id], KNOWN, use_evidence=True)
        expected = {"stable": "proven"}.get(row.verdict, "blocked")
        expected, _why = NOT_PROVEN.get(row.id, (expected, ""))
        assert found.verdict == expected, row.id
        assert found.conflict is (row.id in ("m080", "m082", "m083", "m085"))


def test_every_rule_is_asked_of_facts_that_exist() -> None:
    """A misspelt path is never true: each rule may only use paths that the plan's document has."""
    known = profile.resolve(profile.find("qwen3.5-397b-a17b-nvfp4"))
    found = verdict.judge(known, KNOWN)
    assert found.findings
    asked = dataclasses.replace(known, settings=found.runs.settings)
    document = facts.document(asked, found.runs.settings, found.draft, found.pools, {})
    written = knowledge.load("rules")
    for rule in KNOWN.rules:
        for path in paths(jmespath.compile(written[rule.id]["when"]).parsed):
            place: t.Any = document
            if path[0] == "settings":
                assert KNOWN.tables.names.get(path[1], path[1]) == path[1], f"{rule.id}: {path[1]} is an alias"
                continue
            for key in path:
                assert key in place, f"{rule.id}: {'.'.join(path)}"
                place = place[key]


def paths(node: dict[str, t.Any]) -> t.Iterator[tuple[str, ...]]:
    if node["type"] == "subexpression":
        inner = [list(paths(child)) for child in node["children"]]
        yield tuple(key for part in inner for path in part for key in path)
    elif node["type"] == "field":
        yield (node["value"],)
    else:
        for child in node.get("children", []):
            if isinstance(child, dict):
                yield from paths(child)


def test_a_rule_may_ask_which_variables_a_plan_sets_by_name_alone() -> None:
    made = profile.resolve(profile.find("glm-4.7-nvfp4"), {"environment": {"HF_TOKEN": "secret", "B": "1"}})
    asked = facts.document(made, made.settings, None, None, {})["environment"]
    assert {"HF_TOKEN", "B"} <= set(asked) and asked == sorted(asked)


HARMONY = "downloads.harmony-vocabulary"


@pytest.mark.parametrize(
    ("name", "overrides", "told"),
    [
        ("gpt-oss-120b-vllm", {}, True),
        ("gpt-oss-120b-vllm", {"environment": {"TIKTOKEN_ENCODINGS_BASE": "/cache/huggingface/encodings"}}, False),
        ("gpt-oss-120b-sglang", {}, False),
        ("qwen3.5-122b-a10b-nvfp4-vllm", {}, False),
    ],
)
def test_a_vocabulary_that_vllm_would_download_is_told(name: str, overrides: dict[str, t.Any], told: bool) -> None:
    found = verdict.judge(profile.resolve(profile.find(name), overrides), KNOWN)
    said = {finding.id: finding for finding in found.findings}
    assert (HARMONY in said) is told
    assert not told or said[HARMONY].severity == "warning"


@pytest.mark.parametrize(("allowed", "severity"), [(False, "error"), (True, "warning")])
def test_a_context_that_the_owner_lets_pass_the_models_own_does_not_block(allowed: bool, severity: str) -> None:
    """The engine starts with it; seen in a public recipe that was blocked."""
    settings = {"context_length": 400000, "allow_longer_context": allowed}
    found = verdict.judge(profile.resolve(profile.find("laguna-s-2.1-nvfp4-vllm"), {"settings": settings}), KNOWN)
    assert [f.severity for f in found.findings if f.id.startswith("context.over-native-rope")] == [severity]


def entry(**changes: t.Any) -> dict[str, t.Any]:
    return {
        "id": "own.rule",
        "when": "settings.page_size > `1`",
        "severity": "error",
        "names": ["page_size"],
        "message": "Pages of {settings.page_size} tokens.",
        "remedy": "Use 1.",
        "source": [{"from": "own", "verified": "measured"}],
    } | changes


def overlay(tmp_path: pathlib.Path, *entries: dict[str, t.Any]) -> list[str]:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "own.yml").write_text(yaml.safe_dump({"entries": list(entries)}), encoding="utf-8")
    return [str(tmp_path)]


def test_an_owner_adds_a_rule(tmp_path: pathlib.Path) -> None:
    found = rules.evaluate(rules.load_rules(overlay(tmp_path, entry())), {"settings": {"page_size": 64}}).findings
    assert [f.message for f in found if f.id == "own.rule"] == ["Pages of 64 tokens."]


def test_a_fact_that_nobody_knows_is_told_as_such(tmp_path: pathlib.Path) -> None:
    own = rules.load_rules(overlay(tmp_path, entry(when="settings.page_size == `64`")))
    (found,) = (
        f
        for f in rules.evaluate(own, {"settings": {}}, {("settings", "page_size"): (1, 64)}).findings
        if f.id == "own.rule"
    )
    assert found.severity == "warning" and found.message.endswith("decides: Pages of unknown tokens.")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"when": "settings.page_size >"}, "rule 'own.rule': when:"),
        ({"when": "!settings.page_size"}, r"write !\(a\.b\)"),
        ({"engines": {"sglang": "newest"}}, "version range"),
        ({"severity": "fatal"}, r"own\.yml: entries\.0 \(id own\.rule\): severity"),
        ({"id": "graphs.off"}, "already defined"),
    ],
)
def test_a_bad_rule_is_one_error(tmp_path: pathlib.Path, changes: dict[str, t.Any], text: str) -> None:
    with pytest.raises(Exception, match=text) as caught:
        rules.load_rules(overlay(tmp_path, entry(**changes)))
    assert isinstance(caught.value, knowledge.CollectionError)


def test_a_rule_speaks_of_its_versions_only() -> None:
    rule = next(rule for rule in KNOWN.rules if rule.id == "experts.cutlass-removed")
    assert rule.concerns("sglang", "0.5.16")
    assert not rule.concerns("sglang", "0.5.15")  # its wheel still has cutlass_moe_fp4
    assert not rule.concerns("vllm", "0.17.0")


@pytest.mark.parametrize(
    ("kind", "blocked"),
    [
        (
            {"mla": {"layers": 4, "heads": 16, "kv_lora_rank": 512, "nope_dim": 256, "rope_dim": 64, "v_dim": 256}},
            False,
        ),
        ({"attention": [{"layers": 4, "heads": 16, "kv_heads": 4, "head_dim": 512}]}, True),
        ({"attention": [{"layers": 4, "heads": 16, "kv_heads": 4, "head_dim": 256}]}, False),
    ],
)
def test_flashinfers_limit_is_one_of_softmax_heads(kind: dict[str, t.Any], blocked: bool) -> None:
    """Latent attention has kernels of its own, made for the widths of its latent."""
    own = {
        "id": "own", "title": "Own", "model": "own/model", "proven": "untested",
        "facts": {"architecture": "Own", "hidden_size": 2048, "vocab_size": 1000, "native_context": 4096,
                  "dense": {"layers": 4, "intermediate": 4096}, **kind},
        "engine": {"name": "sglang", "version": "0.5.13"}, "parallel": {}, "precision": {},
        "settings": {"attention_backend": "flashinfer"},
        "source": [{"of": "facts", "from": "made here", "verified": "inferred"}],
    }  # fmt: skip
    found = verdict.judge(profile.resolve(profile.find(own)), KNOWN)
    assert ("attention.flashinfer-head-dim" in {f.id for f in found.findings}) is blocked
