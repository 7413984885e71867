"""Launches that owners published pass the real parser and validation of the version they ran; wrong ones do not."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

import pytest
import questions as q
from engine_parsers import tables
from engine_parsers.oracle import Answer, Case
from engine_parsers.resolved import differences, resolved
from limits import beyond

SGLANG, VLLM = tables.VERSIONS["sglang"], tables.VERSIONS["vllm"]


def since(first: str, versions: tuple[str, ...]) -> tuple[str, ...]:
    """Return the versions from one on."""
    return versions[versions.index(first) :]


@dataclass(frozen=True, eq=False)
class Asked:
    """A published launch, changed or not, put to an engine version. `argv` is appended raw, past the collection."""

    published: q.Published
    engine: str
    version: str
    settings: t.Mapping[str, t.Any] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def case(self) -> Case:
        said = self.published.case(self.engine, self.version, {**self.settings, **dict.fromkeys(self.without)})
        return Case((*said.argv, *self.argv), env=said.env, models=said.models)

    def __str__(self) -> str:
        return f"{self.published.name}, {self.engine} {self.version}"


def accepted() -> t.Iterator[t.Any]:
    """Each launch: in every run on the version that ran it, in the long run on all others that can take it."""
    ran = (
        (q.QWEN_397B_MTP, "0.5.10", SGLANG),
        (q.QWEN_397B_EP4, "0.5.10", SGLANG),
        (q.GLM_MTP, "0.5.10", SGLANG),
        (q.GLM_PLAIN, "0.5.10", SGLANG),
        (q.NEMOTRON_ULTRA, "0.5.12", SGLANG),
        # The image was a 0.5.13 build with five back-ports; the stock release that has them all is 0.5.14.
        (q.NEMOTRON_SUPER_MTP, "0.5.14", since("0.5.14", SGLANG)),
        # The image was 0.5.11 with PR 24436; the stock release that has it, and a transformers that knows the drafter, is 0.5.13.
        (q.GEMMA_DRAFTER, "0.5.13", since("0.5.13", SGLANG)),
        (q.ONE_SPARK_VLLM, "0.17.1", VLLM),
    )
    for published, own, versions in ran:
        for version in versions:
            asked = Asked(published, "vllm" if version in VLLM else "sglang", version)
            yield pytest.param(asked, id=str(asked), marks=() if version == own else pytest.mark.long)


@pytest.mark.parametrize("asked", list(accepted()))
def test_a_published_launch_is_accepted_and_resolves_as_planned(asked: Asked, answer: Answer) -> None:
    if why := beyond(asked.published.settings["model"], asked.engine, asked.version, answer.reason):
        pytest.skip(f"not run: {why}")
    assert asked.published.faults(asked.engine, answer) == []


def _wrong() -> t.Iterator[t.Any]:
    glm, ultra, one = q.GLM_PLAIN, q.NEMOTRON_ULTRA, q.ONE_SPARK_VLLM
    cases = (
        ("a flag that no version has", Asked(glm, "sglang", "0.5.10", argv=("--disable-deep-gemm",)), "parse", "unrecognized arguments"),
        ("an old flag in a new version", Asked(glm, "sglang", "0.5.23", argv=("--disable-piecewise-cuda-graph",)), "parse", "unrecognized"),
        ("a new flag in an old version", Asked(glm, "sglang", "0.5.13", argv=("--cuda-graph-max-bs-decode", "8")), "parse", "unrecognized"),
        ("a prefix that became ambiguous", Asked(glm, "sglang", "0.5.23", argv=("--cuda-graph-max-bs", "8")), "parse", "ambiguous"),
        ("a wrong choice", Asked(glm, "sglang", "0.5.10", argv=("--moe-runner-backend", "marlin")), "parse", "invalid choice"),
        ("a wrong type", Asked(glm, "sglang", "0.5.10", argv=("--tp-size", "four")), "parse", "invalid int"),
        ("an unknown algorithm", Asked(glm, "sglang", "0.5.13", argv=("--speculative-algorithm", "NONSENSE")), "resolve", "Unknown specul"),
        ("nodes that do not divide TP", Asked(glm, "sglang", "0.5.10", argv=("--nnodes", "3")), "check", "divisible"),
        ("a context out of range", Asked(glm, "sglang", "0.5.10", argv=("--context-length", "9999999")), "resolve", "greater than"),
        ("attention that the family cannot have", Asked(ultra, "sglang", "0.5.12", {"attention_backend": "triton"}), "resolve", "triton"),
        ("MTP of a hybrid without its back-port", Asked(q.NEMOTRON_SUPER_MTP, "sglang", "0.5.13"), "resolve", "radix cache"),
        ("attention that the drafter's family cannot have",
         Asked(q.GEMMA_DRAFTER, "sglang", "0.5.13", {"attention_backend": "flashinfer"}), "resolve", "Gemma4 only supports"),
        ("vLLM: a flag of SGLang", Asked(one, "vllm", "0.17.1", argv=("--mem-fraction-static", "0.8")), "parse", "unrecognized"),
        ("vLLM: a flag that came later", Asked(one, "vllm", "0.17.1", argv=("--linear-backend", "auto")), "parse", "unrecognized"),
        ("vLLM: a choice out of its list", Asked(one, "vllm", "0.17.1", argv=("--moe-backend", "nope")), "parse", "invalid choice"),
        ("vLLM: a share out of range", Asked(one, "vllm", "0.17.1", argv=("--gpu-memory-utilization", "1.7")), "create_engine_config", "less than"),
        ("vLLM: an unknown backend", Asked(one, "vllm", "0.17.1", argv=("--attention-backend", "NOPE")), "", "NOPE"),
        # The collection refuses this one itself, so the flag is passed around it; the parser takes the last one.
        ("vLLM: no draft token",
         Asked(one, "vllm", "0.17.1", argv=("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 0}')),
         "create_engine_config", "num_speculative_tokens"),
        ("vLLM: a rank that does not exist", Asked(one, "vllm", "0.17.1", argv=("--nnodes", "2", "--node-rank", "5", "-tp", "2")),
         "", "rank"),
    )  # fmt: skip
    for name, asked, stage, reason in cases:
        yield pytest.param(asked, stage, reason, id=name)


@pytest.mark.parametrize(("asked", "stage", "reason"), list(_wrong()))
def test_what_is_wrong_is_refused_by_the_engine_itself(asked: Asked, answer: Answer, stage: str, reason: str) -> None:
    """The oracle can say no, at the stage and for the reason that fits."""
    assert not answer.accepted
    assert stage in ("", answer.stage), answer.reason
    assert re.search(re.escape(reason), answer.reason or "", re.I), answer.reason
    assert asked.published.faults(asked.engine, answer)


STEPS = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_num_draft_tokens": 2}


@pytest.mark.parametrize(
    ("asked", "tokens"),
    [
        pytest.param(Asked(q.GLM_PLAIN, "sglang", "0.5.10", {**STEPS, "speculative_eagle_topk": 1}), 4, id="EAGLE top-k 1: steps + 1"),
        pytest.param(Asked(q.GLM_PLAIN, "sglang", "0.5.10", {**STEPS, "speculative_eagle_topk": 2}), 2, id="EAGLE top-k 2: as given"),
        pytest.param(
            Asked(q.GEMMA_DRAFTER, "sglang", "0.5.13", {"speculative_num_steps": 6, "speculative_num_draft_tokens": 5}), 5,
            id="FROZEN_KV_MTP: as given",
        ),
    ],
)  # fmt: skip
def test_too_few_draft_tokens_are_not_refused_but_found(asked: Asked, answer: Answer, tokens: int) -> None:
    """No SGLang refuses them: it changes the number or runs with too few. The comparison with the plan finds both."""
    assert answer.accepted, answer.reason
    said = resolved("sglang", answer)
    assert said["draft_tokens"] == tokens
    given, enough = asked.settings["speculative_num_draft_tokens"], said["draft_steps"] + 1
    assert bool(differences("sglang", answer, {"draft_tokens": given})) == (tokens != given)
    assert bool(differences("sglang", answer, {"draft_tokens": enough})) == (tokens != enough)


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(
            Asked(q.GLM_PLAIN, "sglang", "0.5.10", argv=("--mem-fraction-static", "1.7")),
            id="memory above all there is",
        ),
        pytest.param(Asked(q.GLM_PLAIN, "sglang", "0.5.10", argv=("--node-rank", "7")), id="rank 7 of 4"),
        pytest.param(Asked(q.GLM_PLAIN, "sglang", "0.5.10", argv=("--ep-size", "3")), id="EP that does not divide TP"),
    ],
)
def test_what_sglang_accepts_and_should_not(asked: Asked, answer: Answer) -> None:
    """Why these are rules of ours: the day an engine refuses one itself, this test says so."""
    assert answer.accepted
