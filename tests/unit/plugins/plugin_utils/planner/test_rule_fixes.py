"""Each rule's reason: the case that it is about, the similar one that it must leave alone, and a remedy that works."""

from __future__ import annotations

import dataclasses
import functools
import re
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Finding
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement import facts, patches, rules
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model import memory, speculation
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model.model import (
    Diffusion,
    Parallelism,
    check_parallelism,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile import profile
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.recipes import recipe
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import plan

RULES = rules.load_rules()
PATCHES = patches.load_patches()
WRITTEN = knowledge.load("rules")
# No setting fixes these: only other nodes, another checkpoint or another version.
WITHOUT_FIX = {
    "memory.uneven",  # memory is to be freed on a node; the variable that switches the check off is no setting
    "attention.vllm-sparse-latent",  # another release
    "memory.weights-too-large", "settings.quantization-mixed-unknown", "experts.ungated-0.5.10", "load.class-unknown",
}  # fmt: skip
# Whether less is needed with their fixes only a plan's own memory tells: test_remedies.
MEMORY_TELLS = {"memory.does-not-fit", "memory.vllm-does-not-fit"}
GLM, QWEN, ULTRA, GEMMA = "glm-4.7-nvfp4", "qwen3.5-397b-a17b-nvfp4", "nemotron-3-ultra-550b-nvfp4", "gemma-4-31b-it"
SUPER, MIXED = "nemotron-3-super-120b-nvfp4", "qwen3.6-27b-nvfp4"
VLLM, FP8, MINIMAX = "qwen3.5-122b-a10b-nvfp4-vllm", "glm-4.7-fp8", "minimax-m2.5-nvfp4"
MTP = {"speculative_algorithm": "NEXTN", "speculative_num_steps": 3, "speculative_num_draft_tokens": 4}
TIGHT = memory.Demand(
    weights=40.0, weights_by_kind={}, weights_from="derived", kv_bytes_token=30_000.0, slot_bytes=0.0, draft=1.0,
    graphs=2.73, activations=4.0, context=0.5, load_peak=41.0,
)  # fmt: skip
FULL, STATES = dataclasses.replace(TIGHT, weights=97.0), dataclasses.replace(TIGHT, slot_bytes=0.1 * 2**30)


@dataclasses.dataclass(frozen=True)
class Case:
    """One launch. need: its memory demand (None: not known); scheduled: its patches (None: those that it needs)."""

    name: str
    settings: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    parallel: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    version: str = ""
    features: t.Mapping[str, bool] = dataclasses.field(default_factory=dict)
    scheduled: tuple[str, ...] | None = None
    need: memory.Demand | None = None
    free: float = 101.0
    free_most: float = 101.0
    facts: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    method: str | None = None

    def after(self, fix: t.Mapping[str, t.Any]) -> Case:
        """Return the launch with a rule's fix applied, whose facts are filled in."""
        return dataclasses.replace(
            self,
            settings={**self.settings, **fix.get("settings", {})},
            parallel={**self.parallel, **fix.get("parallel", {})},
        )


@functools.cache
def entry(name: str) -> t.Any:
    return profile.find(name)


def asked(case: Case) -> tuple[profile.Profile, dict[str, t.Any]]:
    """Return the profile of a case and the document that rules read."""
    base = profile.resolve(entry(case.name))
    spread = {
        "nodes": base.nodes,
        "tp": base.parallelism.tp,
        "pp": base.parallelism.pp,
        "ep": base.parallelism.ep,
        **case.parallel,
    }
    settings = {key: value for key, value in {**base.settings, **case.settings}.items() if value is not None}
    own = dataclasses.replace(
        base,
        engine=dataclasses.replace(base.engine, version=case.version or base.engine.version),
        nodes=spread["nodes"],
        parallelism=Parallelism(spread["tp"], spread["pp"], spread["ep"]),
        settings=settings,
        facts=dataclasses.replace(base.facts, **case.facts) if base.facts else None,
        quant_method=case.method or base.quant_method,
    )
    algorithm = settings.get("speculative_algorithm")
    config = settings.get("speculative_config")
    draft = None
    if own.engine.name == "vllm" and config:
        draft = speculation.Draft(str(config.get("method")), 3, 1, 4, False)
    elif own.engine.name == "sglang" and algorithm:
        steps = settings.get("speculative_num_steps", 3)
        tokens = max(steps + 1, settings.get("speculative_num_draft_tokens", 4))
        draft = speculation.Draft(algorithm, steps, settings.get("speculative_eagle_topk", 1), tokens, False)
    pools = None
    if case.need and own.engine.name == "sglang":
        pools = memory.sglang_pools(
            case.need, case.free, settings, free_most=case.free_most,
            speculative=draft is not None, draft_tokens=4 if draft else 0, context_length=32768,
        )  # fmt: skip
    elif case.need:
        pools = memory.vllm_pools(
            case.need,
            case.free,
            121.7,
            settings,
            free_most=case.free_most,
            context_length=settings.get("context_length", 32768),
        )
    document = functools.partial(facts.document, own, settings, draft, pools, case.features)
    needed = patches.needed(PATCHES, own.engine.name, own.engine.version, document())
    return own, document(scheduled=[p["id"] for p in needed] if case.scheduled is None else case.scheduled)


def found(case: Case) -> dict[str, Finding]:
    own, document = asked(case)
    concerned = rules.concerned(RULES, own.engine.name, own.engine.version)
    return {finding.id: finding for finding in rules.evaluate(concerned, document).findings}


def errors(case: Case) -> set[str]:
    return {rule for rule, finding in found(case).items() if finding.severity == "error"}


PP4 = {"tp": 1, "pp": 4}
PLAIN = {"speculative_algorithm": None}
CASES: dict[str, Case] = {
    "attention.flashinfer-head-dim": Case(GEMMA, {"attention_backend": "flashinfer", **PLAIN}),
    "attention.trtllm": Case(GLM, {"attention_backend": "trtllm_mha"}, version="0.5.12"),
    "attention.hopper-kernels": Case(GLM, {"attention_backend": "fa3"}),
    "attention.triton-mamba-first": Case(ULTRA, {"attention_backend": "triton"}),
    "attention.pipeline-triton": Case(GLM, {"attention_backend": "triton", **PLAIN}, PP4),
    "attention.merge-state": Case(GLM, {"attention_backend": "flashinfer", **PLAIN}, PP4),
    "attention.nvfp4-cache-speculation": Case(
        GLM,
        {"kv_cache_dtype": "nvfp4", "attention_backend": "flashinfer", "moe_runner_backend": "flashinfer_cutlass", **MTP},
        version="0.5.16",
    ),
    "attention.vllm-flashinfer-canvas": Case(
        VLLM, {"attention_backend": "FLASHINFER"}, facts={"diffusion": Diffusion(256, (12, 17, 30))}
    ),
    "experts.no-sm121-kernel": Case(GLM, {"moe_runner_backend": "flashinfer_trtllm"}),
    "experts.deep-gemm-runner": Case(ULTRA, {"moe_runner_backend": "deep_gemm"}),
    "experts.cutlass-removed": Case(QWEN, {"moe_runner_backend": "triton"}, {"ep": 4}, version="0.5.17"),
    "experts.ungated-cutlass": Case(ULTRA, {"moe_runner_backend": "auto"}),
    "experts.eager-garbage": Case(QWEN, {"disable_cuda_graph": True, "moe_runner_backend": "auto"}, {"ep": 4}),
    "experts.flashinfer-cutlass-ep": Case(QWEN, {"moe_runner_backend": "flashinfer_cutlass"}, {"ep": 4}),
    "experts.flashinfer-cutlass-0.5.10": Case(QWEN, {"moe_runner_backend": "flashinfer_cutlass"}),
    "experts.cutlass-moe-fp4-ep": Case(QWEN, {"moe_runner_backend": "triton"}, {"ep": 4}, scheduled=()),
    "experts.compressed-tensors": Case(
        GLM, {"moe_runner_backend": "flashinfer_cutlass", "quantization": "compressed-tensors"}, version="0.5.12"
    ),
    "experts.flashinfer-ep-size": Case(ULTRA, {"moe_runner_backend": "flashinfer_cutlass"}, {"ep": 2}),
    "experts.fp8-cutlass-ep": Case(
        FP8, {"moe_runner_backend": "cutlass", "quantization": "fp8"}, {"ep": 4}, version="0.5.12"
    ),
    "experts.triton-kernel-ep": Case("gpt-oss-120b-sglang", {}, {"nodes": 2, "tp": 2, "ep": 2}),
    "experts.block-fp8": Case(FP8, {"moe_runner_backend": "flashinfer_cutlass"}, version="0.5.12"),
    "experts.fp8-ep": Case(FP8, {}, {"ep": 4}, version="0.5.10"),
    "experts.ep-load-balancer": Case(ULTRA, {"enable_eplb": True}),
    "experts.ep-load-balancer-0.5.10": Case(QWEN, {"enable_eplb": True}, {"ep": 4}),
    "experts.load-balancer-without-ep": Case(QWEN, {"enable_eplb": True}, {"ep": 1}),
    "experts.padding": Case(
        GLM, {"moe_runner_backend": "flashinfer_cutlass"}, version="0.5.12",
        facts={"moe": dataclasses.replace(profile.resolve(profile.find(GLM)).facts.moe, intermediate=1472)},  # type: ignore[union-attr,type-var]
    ),
    "experts.vllm-no-sm121-kernel": Case(VLLM, {"moe_runner_backend": "flashinfer_trtllm"}),
    "experts.vllm-mxfp4-0.19": Case("gpt-oss-120b-vllm", {"moe_runner_backend": "triton"}, version="0.20.0"),
    "experts.vllm-mxfp4-triton": Case("gpt-oss-120b-vllm", {"moe_runner_backend": "triton"}, version="0.31.0"),
    "experts.vllm-mxfp4-trtllm": Case("gpt-oss-120b-vllm", {"moe_runner_backend": "flashinfer_trtllm"}, version="0.33.0"),
    "experts.ep-without-experts-vllm": Case(VLLM, {}, {"ep": 2, "tp": 2, "nodes": 2}, facts={"moe": None}),
    "graphs.piecewise-dense-fp4": Case(GLM, {"disable_piecewise_cuda_graph": False}),
    "graphs.batch-over-garbage": Case(
        QWEN, {"moe_runner_backend": "triton", "cuda_graph_bs": [1, 2, 4], "max_running_requests": 8}, {"ep": 4}
    ),
    "graphs.cudnn-missing": Case(GLM, {"fp4_gemm_backend": "flashinfer_cudnn"}, features={"cudnn": False}),
    "graphs.cudnn-missing-auto": Case(GLM, {"fp4_gemm_backend": "auto"}, features={"cudnn": False}),
    "memory.fewer-blocks-than-requests": Case(VLLM, {"max_running_requests": 10**6}, version="0.20.2", need=STATES),
    "memory.block-over-batch": Case(VLLM, {"mamba_cache_mode": "align", "chunked_prefill_size": 8}, need=STATES),
    "memory.below-floor": Case(GLM, {"mem_fraction_static": 0.3}, need=TIGHT),
    "memory.no-request": Case(QWEN, {"max_mamba_cache_size": 2, "mem_fraction_static": 0.8}, need=STATES),
    "memory.states-need-radix-cache": Case(QWEN, {**MTP, "mamba_scheduler_strategy": "extra_buffer", "disable_radix_cache": True}),
    "memory.states-overlap": Case(QWEN, {**PLAIN, "mamba_scheduler_strategy": "no_buffer"}, version="0.5.14"),
    "memory.far-above-ceiling": Case(GLM, {"mem_fraction_static": 0.99}, need=TIGHT),
    "memory.fraction-out-of-range": Case(GLM, {"mem_fraction_static": 1.7}),
    "memory.vllm-fraction-given": Case(GLM, {"gpu_memory_utilization": 0.8}),
    "memory.vllm-utilisation-high": Case(VLLM, {"gpu_memory_utilization": 0.99}, need=TIGHT),
    "memory.vllm-no-cache": Case(VLLM, {"gpu_memory_utilization": 0.3}, need=TIGHT),
    "memory.vllm-below-one-context": Case(
        VLLM, {"gpu_memory_utilization": 0.4, "context_length": 262144, "max_model_len": None}, need=TIGHT
    ),
    "speculation.hybrid-radix": Case(QWEN, {**MTP, "mamba_scheduler_strategy": "no_buffer"}),
    "speculation.nemotron-radix": Case(
        SUPER, {**MTP, "mamba_scheduler_strategy": "no_buffer"}, version="0.5.13", features={"nemotron_mtp": False}
    ),
    "speculation.assistant-unknown": Case(GEMMA, MTP, version="0.5.11"),
    "speculation.no-head": Case("qwen3-235b-a22b-instruct-2507-nvfp4", MTP, version="0.5.12"),
    "speculation.no-drafter": Case(GLM, {**MTP, "speculative_algorithm": "EAGLE3"}),
    "speculation.no-dspark-drafter": Case(
        "qwen3-235b-a22b-instruct-2507-nvfp4", {**MTP, "speculative_algorithm": "DSPARK"}, version="0.5.17"
    ),
    "speculation.indexer-ring": Case("qwen3.8-flash-next-nvfp4-sglang", {"speculative_num_steps": 4}),
    "speculation.vllm-no-drafter": Case(VLLM, {"speculative_config": {"method": "eagle3"}}),
    "speculation.vllm-assistant-embedding": Case(
        "gemma-4-26b-a4b-it-vllm",
        {"speculative_config": {"method": "mtp", "model": "google/gemma-4-26B-A4B-it-assistant"}},
        version="0.26.0",
    ),
    "speculation.vllm-mtp-unknown": Case(
        "qwen3.8-flash-next-nvfp4-vllm", {"speculative_config": {"method": "mtp"}}, version="0.28.0"
    ),
    "speculation.vllm-moe-backend": Case(
        VLLM, {"speculative_config": {"method": "mtp", "moe_backend": "triton"}}, version="0.18.1"
    ),
    "topology.ranks": Case(GLM, {}, {"nodes": 2}),
    "topology.kv-heads": Case(GLM, {}, {"nodes": 3, "tp": 3}),
    "topology.pipeline-unsupported": Case(GEMMA, PLAIN, {"tp": 1, "pp": 4}, version="0.5.12"),
    "topology.pipeline-tied": Case(
        GEMMA, PLAIN, {"tp": 1, "pp": 4}, facts={"architecture": "LlamaForCausalLM", "tied_embeddings": True}
    ),
    "topology.pipeline-unsupported-vllm": Case(
        VLLM, {"speculative_config": None}, {"nodes": 2, "tp": 1, "pp": 2}, version="0.33.0",
        facts={"architecture": "Zamba2ForCausalLM"},
    ),
    "topology.pipeline-speculation": Case(QWEN, MTP, {"tp": 2, "pp": 2}),
    "topology.pipeline-eagle-only": Case(
        GLM, {**MTP, "speculative_algorithm": "NGRAM", "moe_runner_backend": "flashinfer_cutlass"},
        {"tp": 2, "pp": 2}, version="0.5.23",
    ),
    "context.over-native-rope": Case(GLM, {"context_length": 400000}),
    "settings.moe-wna16": Case("qwen3-coder-30b-a3b-instruct-fp8", {"quantization": "awq"}, method="awq"),
    "settings.quantization-other": Case(FP8, {"quantization": "modelopt_fp8"}, method="fp8"),
    "settings.quantization-other-vllm": Case(
        VLLM, {"quantization": "fp8", "speculative_config": None}, method="compressed-tensors"
    ),
    "load.fastsafetensors-ranks": Case(GLM, {"load_format": "fastsafetensors"}),
    "load.chunk-of-pages": Case(GLM, {"chunked_prefill_size": 1000, "page_size": 64}),
    "load.batch-below-requests": Case(VLLM, {"chunked_prefill_size": 128, "max_running_requests": 256, "speculative_config": None}),
    "load.batch-below-context": Case(
        VLLM, {"chunked_prefill_size": 2048, "enable_chunked_prefill": False, "context_length": 8192, "speculative_config": None}
    ),
    "load.unquantized": Case(GEMMA, {"quantization": "modelopt_fp4", **PLAIN}),
    "load.cache-fp4-missing": Case(GEMMA, {"kv_cache_dtype": "fp4_e2m1", **PLAIN}, version="0.5.12"),
    "attention.flex-mask": Case(GEMMA, {"attention_backend": "flex_attention", **PLAIN}, version="0.5.12"),
    "attention.vllm-e5m2-triton": Case(
        VLLM, {"kv_cache_dtype": "fp8_e5m2", "attention_backend": "TRITON_ATTN", "speculative_config": None}
    ),
    "settings.quantization-fp4-of-fp8": Case(FP8, {"quantization": "modelopt_fp4"}, version="0.5.12", method="fp8"),
}  # fmt: skip


def test_every_error_has_a_case_and_a_fix() -> None:
    error = {rule.id for rule in RULES if rule.severity == "error"}
    assert error - set(CASES) == WITHOUT_FIX | MEMORY_TELLS
    assert {rule for rule in error if "fix" not in WRITTEN[rule]} == WITHOUT_FIX


@pytest.mark.parametrize("rule", CASES)
def test_a_fix_ends_its_rule_and_one_leads_into_no_other_error(rule: str) -> None:
    case = CASES[rule]
    assert rule in errors(case)
    _own, document = asked(case)
    ways = []
    for fix in WRITTEN[rule]["fix"]:
        left = errors(case.after(facts.filled(fix, document)))
        assert rule not in left, fix
        ways.append(left - errors(case))
    assert set() in ways, f"each way out of {rule} leads into another error: {ways}"


@pytest.mark.parametrize("rule", CASES)
def test_a_remedy_names_what_the_fix_changes(rule: str) -> None:
    own, _document = asked(CASES[rule])
    said = found(CASES[rule])[rule]
    assert "unknown" not in said.remedy
    assert "{" not in said.message + said.remedy
    named = {
        setting
        for fix in WRITTEN[rule]["fix"]
        for setting, value in fix.get("settings", {}).items()
        if value is not None
    }
    assert not named or own.engine.name == "vllm" or any(setting in said.remedy for setting in named)


SPREADS = [(nodes, tp, nodes // tp) for nodes in range(1, 9) for tp in range(1, nodes + 1) if not nodes % tp]


@pytest.mark.parametrize("version", ["0.5.12", "0.5.21"])
@pytest.mark.parametrize("name", sorted(knowledge.shared("profile")))
def test_a_fix_of_a_spread_is_one_that_the_model_can_be_cut_into(name: str, version: str) -> None:
    """Most models cannot be split by tensor parallelism over 3, 5, 6 or 7 nodes."""
    if profile.resolve(entry(name)).engine.name != "sglang":
        return
    for nodes, tp, pp in SPREADS:
        case = Case(name, {}, {"nodes": nodes, "tp": tp, "pp": pp, "ep": tp}, version=version)
        _own, document = asked(case)
        for rule in errors(case):
            for fix in (fix for fix in WRITTEN[rule].get("fix", ()) if "tp" in fix.get("parallel", {})):
                done = case.after(facts.filled(fix, document))
                after, _document = asked(done)
                if after.facts:
                    check_parallelism(after.facts, after.parallelism)
                assert not {rule, "topology.kv-heads", "experts.flashinfer-ep-size"} & errors(done), (nodes, tp, rule)
                assert after.nodes <= nodes


def test_no_remedy_leads_in_a_circle_where_experts_have_no_gate() -> None:
    """On 0.5.10 one rule says that flashinfer_cutlass needs another runner, and another that all others need flashinfer_cutlass."""
    for settings in ({"moe_runner_backend": "flashinfer_cutlass"}, {"moe_runner_backend": "cutlass"}):
        for spread in ({"ep": 1}, {"ep": 4}):
            case = Case(SUPER, {**PLAIN, **settings}, spread, version="0.5.10")
            for _step in range(3):
                left = errors(case)
                fixes = [fix for rule in left for fix in WRITTEN[rule].get("fix", ())]
                if not fixes:
                    break
                case = case.after(facts.filled(fixes[0], asked(case)[1]))
            assert errors(case) == {"experts.ungated-0.5.10"}
            assert not errors(dataclasses.replace(case, version="0.5.12"))


# --- the reasons, one by one ------------------------------------------------------------------------------------------


def test_what_a_class_can_do_is_read_per_version() -> None:
    assert facts.able("Glm4MoeForCausalLM", "sglang", "0.5.10") == {
        "registered": True,
        "transformers": None,
        "config_unknown": None,
        "pipeline": True,
        "start_layer": True,
        "balanced": False,
        "mtp_refused": None,
        "states_all": None,
    }
    assert facts.able("MiniMaxM2ForCausalLM", "sglang", "0.5.10")["start_layer"] is False
    assert facts.able("MiniMaxM2ForCausalLM", "sglang", "0.5.10")["pipeline"] is True
    assert set(facts.able("NobodysForCausalLM", "sglang", "0.5.10").values()) == {None}
    assert facts.able("Glm4MoeForCausalLM", "vllm", "0.17.1") == {
        "registered": True,
        "transformers": None,
        "config_unknown": False,
        "pipeline": True,
        "start_layer": None,
        "balanced": None,
        "mtp_refused": False,
        "states_all": False,
    }


@pytest.mark.parametrize(
    ("architecture", "version", "registered", "transformers"),
    [
        ("Step3p7ForConditionalGeneration", "0.17.1", False, False),  # its transformers is below 5
        ("Step3p7ForConditionalGeneration", "0.20.0", False, True),  # a later transformers has the class
        ("Step3p7ForConditionalGeneration", "0.23.0", True, None),
        ("Step3p7ForConditionalGeneration", "v0.22.1-dev", False, True),
        ("Step3p7ForConditionalGeneration", "latest", True, None),  # as the newest that was read
        ("Grok1ForCausalLM", "0.33.0", False, False),  # removed after 0.24.0
        ("Grok1ForCausalLM", "99.0", None, None),  # that release was not read
        ("Step3p7ForConditionalGeneration", "0.16.0", None, None),
        ("NobodysForCausalLM", "0.33.0", None, None),  # nothing is said about a class that no release has
    ],
)
def test_a_release_knows_a_class_or_its_transformers_may(
    architecture: str, version: str, registered: bool | None, transformers: bool | None
) -> None:
    able = facts.able(architecture, "vllm", version)
    assert (able["registered"], able["transformers"]) == (registered, transformers)
    if not registered:
        assert able["pipeline"] is None


STEP: dict[str, t.Any] = {"facts": {"architecture": "Step3p7ForConditionalGeneration"}}


def test_the_plan_says_where_a_release_does_not_know_the_class() -> None:
    own = {"trust_remote_code": None}
    unknown = Case(VLLM, own, version="0.17.1", **STEP)
    said = found(unknown)
    assert said["load.class-unknown"].severity == "error"
    assert "vLLM 0.17.1" in said["load.class-unknown"].message and ">=0.23.0" in said["load.class-unknown"].remedy
    assert "load.class-transformers" not in said
    for settings, version in ((own, "0.20.0"), ({"trust_remote_code": True}, "0.17.1")):
        doubted = found(dataclasses.replace(unknown, settings=settings, version=version))
        assert doubted["load.class-transformers"].severity == "warning"
        assert "load.class-unknown" not in doubted
    for settings, version in (
        (own, "0.23.0"),
        (own, "0.16.0"),
        (own | {"json_model_override_args": {"a": 1}}, "0.17.1"),
    ):
        assert not {"load.class-unknown", "load.class-transformers"} & set(
            found(dataclasses.replace(unknown, settings=settings, version=version))
        )


def test_the_plan_warns_where_a_release_has_the_class_and_not_the_configuration() -> None:
    own = {"trust_remote_code": None}
    known = Case(VLLM, own, version="0.19.0", facts={"architecture": "Gemma4ForConditionalGeneration"})
    assert found(known)["load.config-unknown"].severity == "warning"
    for settings, version in ((own, "0.19.1"), (own, "0.18.1"), ({"trust_remote_code": True}, "0.19.0")):
        assert "load.config-unknown" not in found(dataclasses.replace(known, settings=settings, version=version))


@pytest.mark.parametrize(
    ("architecture", "version", "refused"),
    [
        ("Qwen4ExpForConditionalGeneration", "0.28.0", True),
        ("Qwen4ExpForConditionalGeneration", "0.29.0", False),
        ("Step3p7ForConditionalGeneration", "0.22.1", True),  # a class that the release lacks
        ("Step3p7ForConditionalGeneration", "0.23.0", False),
        ("Glm4MoeForCausalLM", "0.17.0", False),  # selected by its architecture, whatever its model type
        ("NemotronHForCausalLM", "0.17.0", False),  # for some checkpoints: those with a prediction head
        ("LlamaForCausalLM", "0.33.0", True),
        ("Step5ForCausalLM", "0.17.0", False),  # its model type is not known here
        ("LlamaForCausalLM", "0.16.0", None),  # that release was not read
        ("NobodysForCausalLM", "0.33.0", None),
    ],
)
def test_a_release_makes_a_drafter_of_some_model_types(architecture: str, version: str, refused: bool | None) -> None:
    assert facts.able(architecture, "vllm", version)["mtp_refused"] is refused


def test_a_prediction_head_that_a_release_does_not_know_is_refused() -> None:
    rule = "speculation.vllm-mtp-unknown"
    unknown = CASES[rule]
    assert "Qwen4ExpForConditionalGeneration" in found(unknown)[rule].message
    assert rule not in found(dataclasses.replace(unknown, version="0.29.0"))
    for settings in (
        {"speculative_config": None},
        {"speculative_config": {"method": "ngram"}},
        {"speculative_config": {"method": "mtp", "model": "somebody/drafter"}},  # its own model type counts
        {**unknown.settings, "model_impl": "transformers"},
    ):
        assert rule not in found(dataclasses.replace(unknown, settings=settings))
    assert rule in found(dataclasses.replace(unknown, settings={"speculative_config": {"method": "qwen3_next_mtp"}}))


def test_a_block_of_a_hybrids_cache_fits_into_a_step_where_a_step_must_end_at_its_end() -> None:
    """The numbers are those of vLLM 0.17.1 itself (tests/oracle): 2128 tokens with three drafts, and 2048 by default."""
    rule = "memory.block-over-batch"

    def said(**settings: t.Any) -> dict[str, str]:
        made = plan.launch_plan(VLLM, {}, {"settings": {"chunked_prefill_size": None, **settings}})
        return {one["rule"]: one["message"] for one in made["findings"]}

    assert "has 2128 tokens" in said()[rule] and "at most 2048" in said()[rule]
    assert rule in said(chunked_prefill_size=2127)
    assert rule not in said(chunked_prefill_size=2128)
    assert rule not in said(enable_prefix_caching=False)
    assert "has 2096 tokens" in said(speculative_config=None)[rule]
    assert rule not in said(mamba_ssm_cache_dtype="bfloat16")
    of_engine = {"version": "0.27.0", "versions": "", "image": None}
    made = plan.launch_plan(VLLM, {}, {"engine": of_engine, "settings": {"chunked_prefill_size": None}})
    assert rule not in {one["rule"] for one in made["findings"]}


def test_a_class_without_stages_is_not_refused_where_transformers_serves_it() -> None:
    one = CASES["topology.pipeline-unsupported-vllm"]
    chosen = dataclasses.replace(one, settings={"model_impl": "transformers"})
    assert "topology.pipeline-unsupported-vllm" not in found(chosen)


def test_a_checkpoint_of_two_formats_is_read_from_0_5_15_on() -> None:
    """SGLang 0.5.14 and older take it for w4afp8, except for NemotronH; tests/oracle has their messages."""
    rule = "settings.quantization-mixed-unknown"
    assert rule in errors(Case(MIXED, version="0.5.14"))
    assert rule not in found(Case(MIXED, version="0.5.15"))
    assert rule not in found(Case(SUPER, PLAIN, version="0.5.13"))


def test_speculation_on_nemotron_hangs_on_the_image_and_the_radix_cache() -> None:
    stock = CASES["speculation.nemotron-radix"]
    rule = "speculation.nemotron-radix"
    assert rule not in found(dataclasses.replace(stock, features={"nemotron_mtp": True}))
    assert rule not in found(dataclasses.replace(stock, features={}))  # an unknown image, and not a stock one
    assert rule not in found(dataclasses.replace(stock, version="0.5.14"))
    assert rule not in found(dataclasses.replace(stock, settings={**MTP, "disable_radix_cache": True}))


def test_triton_with_stages_crashes_where_the_cache_begins_at_the_stage_s_own_layer() -> None:
    crash = CASES["attention.pipeline-triton"]
    assert "attention.pipeline-triton" not in found(dataclasses.replace(crash, parallel={"tp": 2, "pp": 2}))
    assert "attention.pipeline-triton" in found(dataclasses.replace(crash, version="0.5.17"))
    assert "attention.pipeline-triton" not in found(dataclasses.replace(crash, version="0.5.18"))
    whole = Case(MINIMAX, {"attention_backend": "triton", **PLAIN}, PP4, version="0.5.12")
    assert "attention.pipeline-triton" not in found(whole)


@pytest.mark.parametrize(
    ("heads", "head_dim", "tp", "threads"), [(96, 128, 1, 1536), (96, 128, 4, 384), (64, 128, 1, 1024), (32, 256, 1, 1024), (16, 512, 1, 512)]
)  # fmt: skip
def test_merge_state_starts_a_thread_for_each_eight_values(heads: int, head_dim: int, tp: int, threads: int) -> None:
    assert facts.merge_state_threads(heads, head_dim, tp) == threads


def test_merge_state_is_the_fault_and_not_the_pipeline() -> None:
    one = Case(GLM, {"attention_backend": "flashinfer", **PLAIN}, {"nodes": 1, "tp": 1})
    assert "1536" in found(one)["attention.merge-state"].message
    two = dataclasses.replace(one, parallel={"nodes": 4, "tp": 2, "pp": 2})
    assert "attention.merge-state" not in found(two)
    assert "attention.merge-state" not in found(dataclasses.replace(one, version="0.5.13"))


@pytest.mark.parametrize(("heads", "tp", "fits"), [(8, 4, True), (8, 3, False), (2, 4, True), (6, 4, False)])
def test_kv_heads_and_tp_divide_one_another(heads: int, tp: int, fits: bool) -> None:
    base = profile.resolve(profile.find(GLM))
    assert base.facts
    own = tuple(dataclasses.replace(a, kv_heads=heads) for a in base.facts.attention)
    case = Case(GLM, {}, {"nodes": tp, "tp": tp}, facts={"attention": own})
    assert ("topology.kv-heads" not in found(case)) is fits


def test_nvfp4_experts_with_ep_are_an_error_unpatched_and_worth_a_word_patched() -> None:
    bare = CASES["experts.cutlass-moe-fp4-ep"]
    patched = found(dataclasses.replace(bare, scheduled=None))
    assert "experts.cutlass-moe-fp4-ep" not in patched
    assert patched["experts.cutlass-moe-fp4-ep-patched"].message.startswith("Patched:")
    assert "experts.cutlass-moe-fp4-ep" in errors(dataclasses.replace(bare, scheduled=("sglang-cutlass-moe-ep",)))
    assert "experts.cutlass-moe-fp4-ep" not in found(dataclasses.replace(bare, features={"moe_fp4_ep": True}))


def test_triton_kernel_is_refused_with_ep_by_the_family_that_asserts_it_alone() -> None:
    refused = CASES["experts.triton-kernel-ep"]
    rule = "experts.triton-kernel-ep"
    assert rule in errors(dataclasses.replace(refused, version="0.5.23"))
    for left_alone in (
        {"parallel": {"nodes": 2, "tp": 2, "ep": 1}},
        {"settings": {"moe_runner_backend": "triton"}},
        {"facts": {"architecture": "Qwen3MoeForCausalLM"}},
    ):
        assert rule not in found(dataclasses.replace(refused, **left_alone))  # type: ignore[arg-type]


def test_ep_on_a_dense_model_is_said() -> None:
    assert found(Case(GEMMA, PLAIN, {"ep": 4}))["experts.ep-without-experts"].severity == "info"
    assert "experts.ep-without-experts" not in found(Case(QWEN, {}, {"ep": 4}))


def test_fewer_requests_than_asked_is_said() -> None:
    need = dataclasses.replace(STATES, weights=20.0)
    settings = {"max_mamba_cache_size": 96, "max_running_requests": 32, "mamba_scheduler_strategy": "extra_buffer"}
    said = found(Case(QWEN, {**MTP, **settings, "mem_fraction_static": 0.7}, need=need))["memory.fewer-requests"]
    assert said.severity == "info"
    assert "32 requests are configured, but only 19 can run" in said.message


def test_states_that_the_engine_refuses_are_known_by_version_and_radix_cache() -> None:
    need, overlap = CASES["memory.states-need-radix-cache"], CASES["memory.states-overlap"]
    assert "memory.states-need-radix-cache" not in found(dataclasses.replace(need, version="0.5.14"))
    plain = {**need.settings, "mamba_scheduler_strategy": "no_buffer"}
    assert "memory.states-need-radix-cache" not in found(dataclasses.replace(need, settings=plain))
    assert "memory.states-overlap" not in found(dataclasses.replace(overlap, version="0.5.13"))
    for key in ("disable_radix_cache", "disable_overlap_schedule"):
        assert "memory.states-overlap" not in found(
            dataclasses.replace(overlap, settings={**overlap.settings, key: True})
        )


@pytest.mark.parametrize(("fraction", "severity"), [(0.91, None), (0.95, "warning"), (0.99, "error")])
def test_too_full_is_trouble(fraction: float, severity: str | None) -> None:
    said = found(Case(GLM, {"mem_fraction_static": fraction}, need=TIGHT))
    full = {"memory.above-ceiling", "memory.far-above-ceiling"} & set(said)
    assert {said[rule].severity for rule in full} == ({severity} if severity else set())


def test_a_cap_on_tokens_gives_memory_back() -> None:
    capped = Case(GLM, {"mem_fraction_static": 0.99, "max_total_tokens": 131072}, need=TIGHT)
    assert not {"memory.above-ceiling", "memory.far-above-ceiling"} & set(found(capped))


def test_no_remedy_is_offered_where_there_is_none() -> None:
    said = found(Case(GLM, {"mem_fraction_static": 0.95}, need=FULL))
    assert "memory.does-not-fit" in said
    assert not {"memory.below-floor", "memory.far-above-ceiling"} & set(said)
    large = found(Case(GLM, {}, need=dataclasses.replace(TIGHT, weights=141.0)))
    assert {rule for rule in large if rule.startswith("memory.")} == {"memory.weights-too-large"}


def test_rules_know_no_alias() -> None:
    """Settings have their canonical names before rules read them: an alias would never be true."""
    aliases = {alias for setting in knowledge.load("settings").values() for alias in setting.get("aliases", ())}
    for rule in WRITTEN.values():
        read = set(re.findall(r"settings\.([a-z0-9_]+)", " ".join((rule["when"], rule["message"], rule["remedy"]))))
        changed = {key for fix in rule.get("fix", ()) for key in fix.get("settings", {})}
        assert not (read | changed | set(rule["names"])) & aliases, rule["id"]


@pytest.mark.parametrize("rule", ["topology.socket", "topology.pipeline", "graphs.batch-over"])
def test_what_only_costs_speed_is_info(rule: str) -> None:
    assert WRITTEN[rule]["severity"] == "info"


def test_a_summary_says_that_it_is_one() -> None:
    """What the first stack reports is a summary, but for the issues, rows and code that it points to."""
    for rule in WRITTEN.values():
        for source in rule["source"]:
            if source["from"].startswith("First stack"):
                assert source.get("summary"), rule["id"]
    alone = {rule for rule, made in WRITTEN.items() if all(s.get("summary") for s in made["source"])}
    assert alone == {
        "attention.pipeline-experts", "experts.fp8-ep", "topology.pipeline", "context.over-native-rope-scaled"
    }  # fmt: skip


def test_precision_without_facts_still_counts() -> None:
    base = profile.resolve(profile.find(QWEN))
    own = dataclasses.replace(base, facts=None)
    assert facts.quant_facts(own)["experts"] == "nvfp4"
    assert facts.quant_facts(dataclasses.replace(own, settings={}))["tool"] == "modelopt"  # as its checkpoint says
    assert facts.quant_facts(dataclasses.replace(own, settings={}, quant_method=None))["tool"] == "unknown"


def test_facts_are_those_of_the_resolved_settings() -> None:
    """What the plan runs with counts, not what the profile wrote."""
    own = dataclasses.replace(profile.resolve(entry(QWEN)), quant_method=None)
    bare = {key: value for key, value in own.settings.items() if key != "quantization"}
    assert facts.quant_facts(own)["tool"] == "modelopt"
    assert facts.document(own, bare, None, None, {})["quant"]["tool"] == "unknown"
    named = facts.document(own, {**bare, "speculative_draft_model_path": "own/drafter"}, None, None, {})
    assert named["model"]["drafter"] is True
    assert named["speculation"]["drafter"] is True
    assert facts.document(own, {"context_length": "unknown"}, None, None, {})["context"]["over_native"] is False


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({}, False),
        ({"speculative_num_steps": 2, "speculative_num_draft_tokens": 3}, False),
        ({"speculative_num_steps": 5, "speculative_num_draft_tokens": 6}, True),
        ({"speculative_num_steps": 2, "speculative_eagle_topk": 2, "speculative_num_draft_tokens": 4}, True),
    ],
)
def test_drafts_fit_one_group_of_the_indexer(settings: dict[str, t.Any], refused: bool) -> None:
    said = found(Case("qwen3.8-flash-next-nvfp4-sglang", settings))
    assert ("speculation.indexer-ring" in said) == refused
    if refused:
        assert "one group of 4 keys" in said["speculation.indexer-ring"].message


def test_weights_that_threads_read_ahead_are_said_where_one_memory_holds_both() -> None:
    """Two Sparks were killed while they loaded; on four the room is enough, and other classes copy as they read."""
    command = "sglang serve --model-path deepseek-ai/DeepSeek-V4-Flash-0731 --tp {0} --nnodes {0} --trust-remote-code"
    told = {}
    for nodes in (2, 4):
        image = "docker run --gpus all lmsysorg/sglang:v0.5.20"
        entry = recipe.profile_of(f"{image} {command.format(nodes)}", "serve.sh")
        made = plan.launch_plan(entry, {"hosts": [f"spark{n}" for n in range(nodes)], "free_gib": 104.0})
        told[nodes] = {each["rule"]: each for each in made["findings"]}
    assert "swap" in told[2]["load.staged-by-threads"]["remedy"]
    assert "load.staged-by-threads" not in {*told[4], *found(Case(QWEN, need=FULL))}


# What each engine makes of a checkpoint's own method and the one that is asked for: its release, and whether it refuses.
ASKED = [
    (FP8, "fp8", "fp8", "", False),
    (FP8, "fp8", "modelopt_fp8", "", True),
    (FP8, "fp8", "w8a8_fp8", "", True),
    (FP8, "fp8", "modelopt_fp4", "0.5.17", True),
    (FP8, "fp8", "modelopt_fp4", "0.5.18", False),
    (FP8, "fp8", "mxfp4", "0.5.12", True),
    (FP8, "compressed-tensors", "w8a8_fp8", "", False),
    (FP8, "compressed-tensors", "fp8", "", True),
    (FP8, "modelopt", "fp8", "", False),
    (FP8, "quark", "fp8", "", False),  # not read in the engines' source: not judged
    (GLM, "modelopt", "fp8", "", False),
    (GLM, "compressed-tensors", "modelopt_fp4", "", True),
    (GEMMA, None, "mxfp4", "", True),
    (GEMMA, None, "fp8", "", False),
    (GEMMA, "awq", "awq_marlin", "", False),
    (GEMMA, "gptq", "moe_wna16", "", False),
    (GEMMA, "gptq", "awq", "", True),
    (VLLM, "modelopt", "fp8", "", False),
    (VLLM, "compressed-tensors", "modelopt_fp4", "", True),
    (VLLM, "gptq", "gptq_marlin", "0.33.0", False),
    (VLLM, "awq", "marlin", "0.33.0", False),
    (VLLM, "auto-round", "gptq", "0.33.0", False),
    (VLLM, "fp8", "humming", "0.33.0", False),
    (VLLM, "fp8", "modelopt", "0.33.0", True),
]


@pytest.mark.parametrize(("name", "method", "asked_for", "version", "refused"), ASKED)
def test_what_is_asked_of_a_checkpoint_is_held_against_its_own_method(
    name: str, method: str | None, asked_for: str, version: str, refused: bool
) -> None:
    case = Case(name, {"quantization": asked_for, "speculative_algorithm": None}, version=version, method=method)
    blocked = errors(case) & {
        "load.unquantized",
        "settings.quantization-other",
        "settings.quantization-other-vllm",
        "settings.quantization-fp4-of-fp8",
    }
    assert bool(blocked) is refused, blocked


@pytest.mark.parametrize(
    ("version", "fires"),
    [("0.23.0", False), ("0.24.0", True), ("0.25.1", False), ("0.26.0", False), ("0.27.1", True), ("0.28.0", False)],
)
def test_deep_gemm_is_warned_of_where_its_wheel_has_no_kernels_for_a_spark(version: str, fires: bool) -> None:
    case = Case("glm-4.7-flash-vllm", version=version, method="fp8")
    assert ("load.vllm-deep-gemm" in found(case)) is fires
    assert "load.vllm-deep-gemm" not in found(dataclasses.replace(case, settings={"disable_deep_gemm": True}))
    assert "load.vllm-deep-gemm" not in found(dataclasses.replace(case, method="modelopt"))


@pytest.mark.parametrize(("version", "fires"), [("0.23.0", True), ("0.24.0", False)])
def test_sparse_latent_attention_needs_a_release_with_a_back_end_for_a_spark(version: str, fires: bool) -> None:
    assert ("attention.vllm-sparse-latent" in found(Case("glm-5.2-nvfp4-vllm", version=version))) is fires
    assert "attention.vllm-sparse-latent" not in found(Case("glm-4.7-flash-vllm", version=version))
