"""Every shipped profile and variant, on every engine version that it claims and that there is a table of.

The plan's own argument list and environment go to the real parser and validation; what the engine resolves is compared with
the plan. An image with back-ports is judged by the stock release of its version: what that cannot know is not run, by name.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

import families
import pytest
from engine_parsers.oracle import Answer, Case
from engine_parsers.resolved import differences

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.arguments import load_tables
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.profile import find
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.versions import matches

# What a stock release says of a launch that its profile's image can do: (profile, versions, the engine's words, why).
BACK_PORTS = (
    ("gemma-4-", "<0.5.13", "gemma4_assistant", "its transformers does not know the drafter; the image has PR 24436"),
    ("nemotron-3-super", "<0.5.14", "not compatible with radix cache", "the image has PR 27998"),
)
PROBED = {"attention_backend": "attention_backend", "cuda_graph_max_bs": "graph_max_bs",
          "mamba_scheduler_strategy": "mamba_strategy", "page_size": "page_size", "max_num_seqs": "max_running_requests",
          "max_running_requests": "max_running_requests"}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Asked:
    """The plan of one profile and variant for one engine version; rank 1 where there is one."""

    profile: str
    variant: str
    engine: str
    version: str

    def plan(self) -> dict[str, t.Any]:
        overrides: dict[str, t.Any] = {"engine": {"version": self.version}}
        if self.variant:
            overrides["variant"] = self.variant
        return launch_plan(self.profile, {}, overrides)

    def case(self) -> Case:
        plan, entry = self.plan(), find(self.profile)
        rank = plan["ranks"][-1]
        program = 3 if self.engine == "sglang" else 2
        models = {plan["model"]: model_files(entry, plan["settings"])}
        if plan["settings"].get("speculative_draft_model_path"):
            models[plan["settings"]["speculative_draft_model_path"]] = families.files("Gemma4AssistantForCausalLM")
        own = {k: v for k, v in rank["env"].items() if k.startswith(("SGLANG_", "VLLM_"))}
        # A template's file is in the image, and vLLM looks for it at once: the words of one stand in for it.
        template = plan["settings"].get("chat_template")
        argv = tuple("{{ messages }}" if template and word == template else word for word in rank["argv"][program:])
        return Case(argv, env=own, models=models)

    def __str__(self) -> str:
        return "-".join(filter(None, (self.profile, self.variant, self.version)))


def model_files(entry: t.Mapping[str, t.Any], settings: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Choose the family's files by architecture, and the checkpoint's form by precision and quantization."""
    facts = entry.get("facts") or {}
    kinds = (entry.get("precision") or {}).values()  # a format, or how many parameters have which
    stored = {form for kind in kinds for form in ([kind] if isinstance(kind, str) else kind) if form != "rest"}
    stored |= {kind["rest"] for kind in kinds if not isinstance(kind, str) and "rest" in kind}
    architecture = facts.get("architecture", "ApertusForCausalLM")
    quantization = settings.get("quantization")
    if "nvfp4" in stored:
        mixed = "mixed" if "fp8" in stored or architecture == "NemotronHForCausalLM" else "nvfp4"
        modelopt = quantization or entry.get("engine", {}).get("name") == "sglang"
        form = "compressed-tensors" if quantization == "compressed-tensors" or not modelopt else mixed
    else:
        form = "fp8" if "fp8" in stored else "bf16"
    files = families.files(architecture, form)
    text = files["config.json"].get("text_config", files["config.json"])
    if facts.get("native_context"):
        text["max_position_embeddings"] = facts["native_context"]
    return files


def asked() -> list[t.Any]:
    """List all: the profile's own version in every run, the others in the long one."""
    out = []
    tables = load_tables()
    for name in sorted(knowledge.load("profile")):
        entry = find(name)
        engine = entry["engine"]
        claimed = engine.get("versions") or f"=={engine['version']}"
        known = [p.version for p in tables.versions(engine["name"]) if matches(p.version, claimed)]
        assert engine["version"] in known, f"{name}: there is no flag table of its own version {engine['version']}"
        for variant in entry.get("variants") or {"": {}}:
            for version in known:
                one = Asked(name, variant, engine["name"], version)
                out.append(
                    pytest.param(one, id=str(one), marks=() if version == engine["version"] else pytest.mark.long)
                )
    return out


@pytest.mark.parametrize("asked", asked())
def test_a_profile_passes_the_parser_of_its_engine(asked: Asked, answer: Answer) -> None:
    if not answer.accepted:
        for profile, versions, words, why in BACK_PORTS:
            if (
                asked.profile.startswith(profile)
                and matches(asked.version, versions)
                and words in (answer.reason or "")
            ):
                pytest.skip(
                    f"not run: back-port ({why}); the stock {asked.version} says: {(answer.reason or '')[:120]}"
                )
    assert answer.accepted, f"{answer.stage}: {answer.reason}"
    plan = asked.plan()
    planned = {PROBED[key]: value for key, value in plan["settings"].items() if key in PROBED and value is not None}
    if plan["speculation"]:
        planned["draft_tokens"] = plan["speculation"]["tokens"]
    if asked.engine == "sglang" and plan["settings"].get("disable_piecewise_cuda_graph"):
        planned["prefill_graphs"] = "disabled"
    assert differences(asked.engine, answer, planned) == []
