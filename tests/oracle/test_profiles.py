"""Every shipped profile and variant, on every engine version that it claims and that has a table.

The plan's own argument list and environment go to the real parser and validation; what the engine resolves is compared with
the plan, as it is shipped and, in the long run, with one setting after the other removed or changed. An image with
back-ports is judged by the stock release of its version: what that cannot know is listed, and not run.
"""

from __future__ import annotations

import functools
import re
import typing as t
from dataclasses import dataclass, field

import families
import pytest
from engine_parsers.oracle import Answer, Case
from engine_parsers.resolved import differences, resolved
from limits import beyond
from planned import UNKNOWN, planned

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import (
    find_profile,
    load_tables,
    resolve_profile,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement import knowledge_base, sizes
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import matches

# How a stock release refuses a launch that its profile's image can do: (profile, versions, the engine's words, why).
BACK_PORTS = (
    ("gemma-4-", "<0.5.13", "gemma4_assistant", "its transformers does not know the drafter; the image has PR 24436"),
    ("nemotron-3-super", "<0.5.14", "not compatible with radix cache", "the image has PR 27998"),
    (
        "mistral-small-4",
        "",
        "could not locate the tool call token",
        "mistral_common, which names that token, is a stand-in here",
    ),
    (
        "mistral-small-4",
        "<0.27.0",
        "must be an instance of MistralTokenizer",
        "mistral_common, whose tokenizer that is, is a stand-in here",
    ),
)
# Launches that such an image and a stock release both accept, but resolve_profile differently: profiles, versions.
# PR 24436 turns NEXTN with an assistant drafter into FROZEN_KV_MTP, and runs that without the overlap scheduler.
PROMOTED = ("gemma-4-", "<0.5.12")
# Rules that warn of a refusal that is not certain, and the engine's words.
DOUBTED = {
    "load.class-transformers": ("are not supported for now", "does not recognize this architecture"),
    "load.config-unknown": ("does not recognize this architecture",),
    "speculation.vllm-hidden-states": ("is only supported for",),
}
# Removed one by one; those that begin with `speculative_` also all together.
TAKEN_OUT = (
    "attention_backend", "moe_runner_backend", "cuda_graph_max_bs", "disable_cuda_graph", "disable_piecewise_cuda_graph",
    "page_size", "block_size", "mamba_scheduler_strategy", "max_running_requests", "max_mamba_cache_size",
    "mem_fraction_static", "gpu_memory_utilization", "quantization", "kv_cache_dtype", "fp4_gemm_backend",
    "speculative_num_steps", "speculative_num_draft_tokens", "speculative_eagle_topk", "enable_spec_v2",
    "disable_radix_cache", "chunked_prefill_size", "context_length",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Asked:
    """The plan of one profile and variant for one engine version, and its last rank."""

    profile: str
    variant: str
    engine: str
    version: str

    change: t.Mapping[str, t.Any] = field(default_factory=dict)
    changed: str = ""
    claimed: bool = True

    def overrides(self) -> dict[str, t.Any]:
        engine = {"version": self.version, **({} if self.claimed else {"versions": "", "image": None})}
        overrides: dict[str, t.Any] = {"engine": engine, **self.change}
        return overrides | ({"variant": self.variant} if self.variant else {})

    @functools.cached_property
    def plan(self) -> dict[str, t.Any]:
        return launch_plan(self.profile, {}, self.overrides())

    def late(self) -> frozenset[str]:
        """Name the settings that the engine decides when it loads the model."""
        known = knowledge_base.base()
        chosen = resolve_profile(find_profile(self.profile), self.overrides(), known.tables)
        draft, _findings = sizes.drafted(chosen, known.tables)
        return sizes.running(chosen, draft, known).at_load

    def case(self) -> Case:
        plan, entry = self.plan, find_profile(self.profile)
        rank = plan["ranks"][-1]
        program = 3 if self.engine == "sglang" else 2
        models = {plan["model"]: model_files(entry, plan["settings"])}
        if drafter := plan["settings"].get("speculative_draft_model_path"):
            blocks = str(plan["settings"].get("speculative_algorithm")).lower() in ("dflash", "dspark")
            target = models[plan["model"]]["config.json"]
            models[drafter] = families.block_drafter(target) if blocks else families.files("Gemma4AssistantForCausalLM")
        own = {k: v for k, v in rank["env"].items() if k.startswith(("SGLANG_", "VLLM_"))}
        # A template's file is in the image, and vLLM looks for it at once: a template's text stands in for it.
        template = plan["settings"].get("chat_template")
        argv = tuple("{{ messages }}" if template and word == template else word for word in rank["argv"][program:])
        return Case(argv, env=own, models=models)

    def __str__(self) -> str:
        return "-".join(filter(None, (self.profile, self.variant, self.version, self.changed)))


def model_files(entry: t.Mapping[str, t.Any], settings: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Choose the family's files by architecture, and the checkpoint's form by precision and quantization."""
    facts = entry.get("facts") or {}
    kinds = (entry.get("precision") or {}).values()  # a format, or how many parameters have which format
    stored = {form for kind in kinds for form in ([kind] if isinstance(kind, str) else kind) if form != "rest"}
    stored |= {kind["rest"] for kind in kinds if not isinstance(kind, str) and "rest" in kind}
    architecture = facts.get("architecture", "ApertusForCausalLM")
    quantization = settings.get("quantization")
    if "nvfp4" in stored:
        mixed = "mixed" if "fp8" in stored or architecture == "NemotronHForCausalLM" else "nvfp4"
        modelopt = quantization or entry.get("engine", {}).get("name") == "sglang"
        form = "compressed-tensors" if quantization == "compressed-tensors" or not modelopt else mixed
    else:
        form = next((form for form in ("fp8", "mxfp4") if form in stored), "bf16")
    files = families.files(architecture, form, experts="moe" in facts)
    text = files["config.json"].get("text_config", files["config.json"])
    if facts.get("native_context"):
        text["max_position_embeddings"] = facts["native_context"]
    return files


def of_no_release(engine: t.Mapping[str, t.Any]) -> bool:
    """Whether a profile is for an image of no known release: there is no parser to ask."""
    return not engine.get("versions") and re.match(r"\d+\.\d+\.\d+", engine["version"]) is None


def shipped() -> list[tuple[Asked, bool]]:
    """List every profile, variant and version, and whether it is the profile's own version."""
    out = []
    tables = load_tables()
    for name in sorted(knowledge.load("profile")):
        entry = find_profile(name)
        engine = entry["engine"]
        if of_no_release(engine):
            continue
        claimed = engine.get("versions") or f"=={engine['version']}"
        known = [p.version for p in tables.versions(engine["name"]) if matches(p.version, claimed)]
        assert engine["version"] in known, f"{name}: there is no flag table of its own version {engine['version']}"
        for variant in entry.get("variants") or {"": {}}:
            out += [(Asked(name, variant, engine["name"], version), version == engine["version"]) for version in known]
    return out


def changes(one: Asked) -> dict[str, dict[str, t.Any]]:
    """Remove one setting after the other, turn graphs off, and turn expert parallelism on or off."""
    entry = find_profile(one.profile)
    chosen = resolve_profile(entry, one.overrides())
    out: dict[str, dict[str, t.Any]] = {
        f"without {key}": {"settings": {key: None}} for key in TAKEN_OUT if key in chosen.settings
    }
    if drafts := [key for key in chosen.settings if key.startswith("speculative_")]:
        whole = [key for key in drafts if key == "speculative_config"]  # what else vLLM's object has: it stands for all
        out["without speculation"] = {"settings": dict.fromkeys(whole or drafts)}
    if not chosen.settings.get("disable_cuda_graph"):
        out["eager"] = {"settings": {"disable_cuda_graph": True}}
    if chosen.facts and chosen.facts.moe and chosen.parallelism.tp > 1:
        ep = chosen.parallelism.tp if chosen.parallelism.ep == 1 else 1
        out[f"EP {ep}"] = {"parallel": {"ep": ep}}
    return out


def asked() -> list[t.Any]:
    """List all as they are shipped: the profile's own version in every run, the others in the long one."""
    return [pytest.param(one, id=str(one), marks=() if own else pytest.mark.long) for one, own in shipped()]


def asked_otherwise() -> list[t.Any]:
    """List all with each change."""
    many = [
        Asked(one.profile, one.variant, one.engine, one.version, change, name)
        for one, _own in shipped()
        for name, change in changes(one).items()
    ]
    return [pytest.param(one, id=str(one)) for one in many]


def asked_elsewhere() -> list[t.Any]:
    """List all on the versions that their profiles do not claim, as an owner tries them: without the profile's image."""
    tables, mine = load_tables(), shipped()
    claimed = {(one.profile, one.version) for one, _own in mine}
    many = [
        Asked(one.profile, one.variant, one.engine, parser.version, claimed=False)
        for one, own in mine
        for parser in tables.versions(one.engine)
        if own and (one.profile, parser.version) not in claimed
    ]
    return [pytest.param(one, id=str(one)) for one in many]


def back_port(asked: Asked, answer: Answer) -> str:
    """Return why a refusal by the stock release does not count; empty where it does."""
    for profile, versions, words, why in BACK_PORTS:
        if asked.profile.startswith(profile) and matches(asked.version, versions) and words in (answer.reason or ""):
            return f"back-port ({why}); the stock {asked.version} says: {(answer.reason or '')[:120]}"
    return ""


def foreseen(asked: Asked) -> list[str]:
    """Name the rules that block the plan; that an image is of another version says nothing of the launch."""
    errors = [found["rule"] for found in asked.plan["findings"] if found["severity"] == "error"]
    return [rule for rule in errors if not rule.startswith(("image.", "evidence."))]


def doubted(asked: Asked, answer: Answer) -> list[str]:
    """Name the rules that warn of just this refusal.

    The oracle's transformers has no torch and so no model classes, and its model files bring no code of their own: it refuses
    what vLLM's Transformers backend may serve.
    """
    warned = [found["rule"] for found in asked.plan["findings"] if found["severity"] == "warning"]
    return [rule for rule in warned if any(words in (answer.reason or "") for words in DOUBTED.get(rule, ()))]


def faults(asked: Asked, answer: Answer) -> list[str]:
    """Compare all that the engine resolved with the plan, except for what the plan says is unknown."""
    found = resolved(asked.engine, answer)
    ours = planned(asked.plan, asked.late())
    assert ours.keys() == found.keys(), "a key of the vocabulary has no counterpart in the plan"
    profile, versions = PROMOTED
    if ours["draft_steps"] and asked.profile.startswith(profile) and matches(asked.version, versions):
        ours |= {"speculative_algorithm": "EAGLE", "draft_tokens": ours["draft_steps"] + 1, "overlap": True}
    known = {key: value for key, value in ours.items() if value is not UNKNOWN}
    return differences(asked.engine, answer, known)


@pytest.mark.parametrize("asked", asked())
def test_a_profile_passes_the_parser_of_its_engine(asked: Asked, answer: Answer) -> None:
    if why := back_port(asked, answer):
        pytest.skip(f"not run: {why}")
    assert answer.accepted, f"{answer.stage}: {answer.reason}"
    assert faults(asked, answer) == []


@pytest.mark.parametrize(
    "name", [name for name in sorted(knowledge.load("profile")) if of_no_release(find_profile(name)["engine"])]
)
def test_a_profile_of_an_image_without_a_release_is_planned(name: str) -> None:
    """What the image's parser says about it can only be seen on a node (playbook `inspect_image.yml`)."""
    engine = find_profile(name)["engine"]
    assert launch_plan(name, {}, {})["ranks"]
    pytest.skip(f"not run: {engine['image']} is of no release of {engine['name']}: its parser cannot be had")


def test_little_of_what_is_shipped_is_unknown() -> None:
    """A profile with facts is resolved to the last key, but for what vLLM reads in the checkpoint."""
    unknown: dict[str, set[str]] = {}
    for one, own in shipped():
        if own and "facts" in find_profile(one.profile):
            ours = planned(one.plan, one.late())
            unknown.setdefault(one.engine, set()).update(key for key, value in ours.items() if value is UNKNOWN)
    assert unknown == {"sglang": set(), "vllm": {"attention_backend", "page_size", "quantization"}}


@pytest.mark.long
@pytest.mark.parametrize("asked", asked_otherwise())
def test_the_plan_foresees_what_a_change_comes_to(asked: Asked, answer: Answer) -> None:
    """Each setting removed, eager mode, expert parallelism changed: refused where the plan says so, otherwise as planned."""
    if answer.accepted:
        assert faults(asked, answer) == []
    elif why := back_port(asked, answer):
        pytest.skip(f"not run: {why}")
    else:
        assert foreseen(asked), f"the plan does not foresee: {answer.stage}: {answer.reason}"


@pytest.mark.long
@pytest.mark.parametrize("asked", asked_elsewhere())
def test_the_plan_knows_the_versions_that_no_profile_claims(asked: Asked, answer: Answer) -> None:
    if answer.accepted:
        assert faults(asked, answer) == []
    elif (why := beyond(asked.plan["model"], asked.engine, asked.version, answer.reason)) and not foreseen(asked):
        pytest.skip(f"not run: {why}")
    else:
        assert foreseen(asked) or doubted(asked, answer), f"the plan does not foresee: {answer.stage}: {answer.reason}"
