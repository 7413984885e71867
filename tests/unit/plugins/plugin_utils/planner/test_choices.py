"""How an engine version resolves what is left open, where versions differ; tests/oracle checks all of it against them."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement import knowledge_base, rules, sizes
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile.profile import find, resolve
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan


def resolved(profile: str, version: str, variant: str = "", **settings: t.Any) -> dict[str, tuple[t.Any, str]]:
    """Return value and origin of every setting of a plan for an engine version, without the profile's image."""
    engine = {"version": version, "versions": "", "image": None}
    overrides = {"engine": engine, "settings": settings, **({"variant": variant} if variant else {})}
    plan = launch_plan(profile, {}, overrides)
    return {key: (said["value"], said["by"]) for key, said in plan["resolved"].items()}


def test_graphs_are_no_larger_than_the_requests_that_the_plan_adds() -> None:
    """0.5.22 caps a limit that nobody set at --max-running-requests, which the plan itself may have added."""
    old, new = (resolved("qwen3-coder-next-nvfp4", version) for version in ("0.5.21", "0.5.22"))
    requests, by = new["max_running_requests"]
    assert by == "added"
    assert old["cuda_graph_max_bs"] == (512, "default")
    assert new["cuda_graph_max_bs"] == (requests, "default")
    assert requests < 512


def test_the_limit_that_speculation_sets_cuts_no_graphs() -> None:
    found = resolved("qwen3-next-80b-a3b-thinking-nvfp4", "0.5.22")
    assert found["max_running_requests"] == (48, "default")
    assert found["cuda_graph_max_bs"] == (512, "default")


def test_graphs_that_are_asked_for_stay() -> None:
    found = resolved("glm-4.7-nvfp4", "0.5.22", cuda_graph_max_bs=64, max_running_requests=8)
    assert found["cuda_graph_max_bs"] == (64, "asked")


@pytest.mark.parametrize(("version", "off"), [("0.5.14", True), ("0.5.15", True), ("0.5.16", False)])
def test_prefill_graphs_of_multimodal_models(version: str, off: bool) -> None:
    found = resolved("qwen3.6-35b-a3b-fp8", version, disable_piecewise_cuda_graph=None)
    assert found["disable_piecewise_cuda_graph"] == (off, "default")


@pytest.mark.parametrize(("version", "off"), [("0.5.10", True), ("0.5.14", True), ("0.5.15", False)])
def test_prefill_graphs_of_a_listed_class(version: str, off: bool) -> None:
    found = resolved("qwen3-coder-next-nvfp4", version, disable_piecewise_cuda_graph=None)
    assert found["disable_piecewise_cuda_graph"] == (off, "default")


@pytest.mark.parametrize(("version", "off"), [("0.5.16", False), ("0.5.17", True), ("0.5.18", False)])
def test_prefill_graphs_of_nemotron(version: str, off: bool) -> None:
    found = resolved("nemotron-3-super-120b-nvfp4", version, "ep1", disable_piecewise_cuda_graph=None)
    assert found["disable_piecewise_cuda_graph"] == (off, "default")


@pytest.mark.parametrize(
    ("version", "runner"), [("0.5.10", ("flashinfer_cutlass", "default")), ("0.5.11", ("triton", "asked"))]
)
def test_the_experts_of_nemotron_are_not_asked_about_in_0_5_10(version: str, runner: tuple[str, str]) -> None:
    found = resolved("nemotron-3-super-120b-nvfp4", version, "ep1", moe_runner_backend="triton")
    assert found["moe_runner_backend"] == runner


@pytest.mark.parametrize(
    ("version", "runner"),
    [("0.5.13", "triton_kernel"), ("0.5.14", "marlin"), ("0.5.16", "marlin"), ("0.5.17", "flashinfer_mxfp4")],
)
@pytest.mark.parametrize("asked", [None, "auto"])
def test_the_experts_of_gpt_oss_in_mxfp4(version: str, runner: str, asked: str | None) -> None:
    found = resolved("gpt-oss-120b-sglang", version, "one", moe_runner_backend=asked)
    assert found["moe_runner_backend"] == (runner, "default")


def test_the_experts_of_gpt_oss_that_are_asked_for_stay() -> None:
    found = resolved("gpt-oss-120b-sglang", "0.5.14", "one", moe_runner_backend="triton_kernel")
    assert found["moe_runner_backend"] == ("triton_kernel", "asked")


def test_the_experts_of_gpt_oss_in_full_hang_on_what_is_installed() -> None:
    known = knowledge_base.base()
    base = resolve(find("gpt-oss-120b-sglang"), {"settings": {"moe_runner_backend": None, "quantization": None}})
    full = dataclasses.replace(base, precision={**base.precision, "experts": "bf16"})
    assert sizes.running(full, None, known).by["moe_runner_backend"] == "unknown"
    assert "moe_runner_backend" not in sizes.running(full, None, known).at_load
    spread = dataclasses.replace(full, parallelism=dataclasses.replace(full.parallelism, tp=2, ep=2))
    assert "moe_runner_backend" in sizes.running(spread, None, known).at_load


def test_what_modelopt_wrote_is_unknown_where_nobody_states_it() -> None:
    """NemotronH's quantization is read from the checkpoint, and its experts' runner depends on it."""
    found = resolved("nemotron-3-super-120b-nvfp4", "0.5.13", "ep1", quantization=None, moe_runner_backend=None)
    assert found["quantization"] == (None, "unknown")
    assert found["moe_runner_backend"] == (None, "unknown")


@pytest.mark.parametrize(("version", "off"), [("0.5.12", True), ("0.5.13", True), ("0.5.14", False)])
def test_the_overlap_scheduler_with_a_drafter_that_shares_the_cache(version: str, off: bool) -> None:
    found = resolved("gemma-4-31b-it", version, "steps-4")
    assert found["speculative_algorithm"] == ("FROZEN_KV_MTP", "default")
    assert found["disable_overlap_schedule"] == (off, "default")


@pytest.mark.parametrize(("version", "backend"), [("0.5.18", "flashinfer"), ("0.5.19", "triton")])
def test_the_attention_of_nemotron_with_speculation(version: str, backend: str) -> None:
    assert resolved("nemotron-3-super-120b-nvfp4", version, "ep1-mtp", attention_backend=None)["attention_backend"] == (
        backend,
        "default",
    )
    assert resolved("nemotron-3-super-120b-nvfp4", version, "ep1", attention_backend=None)["attention_backend"] == (
        "flashinfer",
        "default",
    )


@pytest.mark.parametrize(
    ("asked", "runs"),
    [(None, (8, "default")), (127, (127, "asked")), (128, (8, "default")), (4, (4, "asked"))],
)
def test_requests_of_a_model_that_denoises(asked: int | None, runs: tuple[int, str]) -> None:
    name = "diffusiongemma-26b-a4b-it-nvfp4-vllm"
    assert resolved(name, "0.29.0", max_num_seqs=asked)["max_running_requests"] == runs
    assert (
        resolved("gemma-4-26b-a4b-it-vllm", "0.29.0", "one", max_running_requests=128)["max_running_requests"][0] == 128
    )


EAGER, DRAWN = (True, "default"), (False, "default")
VLLM_GRAPHS: list[tuple[str, dict[str, t.Any], tuple[bool, str]]] = [
    ("0.17.1", {"compilation_config": {"cudagraph_mode": "NONE"}}, EAGER),
    ("0.33.0", {"compilation_config": '{"cudagraph_mode": "none"}'}, EAGER),
    ("0.20.0", {"compilation_config": {"cudagraph_mode": 0}, "disable_cuda_graph": False}, EAGER),
    ("0.17.1", {"compilation_config": {"cudagraph_mode": "PIECEWISE"}}, DRAWN),
    ("0.17.1", {"compilation_config": {"mode": 0}}, EAGER),
    ("0.17.1", {"compilation_config": {"mode": 3}}, DRAWN),
    ("0.17.1", {"compilation_config": {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}}, DRAWN),
    ("0.17.1", {"compilation_config": {"mode": "none", "cudagraph_mode": "FULL"}}, DRAWN),
    ("0.33.0", {"compilation_config": {"mode": 0}}, DRAWN),
    ("0.33.0", {"compilation_config": {"mode": 0, "cudagraph_mode": "PIECEWISE"}}, EAGER),
    ("0.20.0", {"optimization_level": "0"}, EAGER),
    ("0.20.0", {"optimization_level": "0", "compilation_config": {"cudagraph_mode": "FULL"}}, DRAWN),
    ("0.20.0", {"optimization_level": "0", "disable_piecewise_cuda_graph": True}, DRAWN),
]


@pytest.mark.parametrize(("version", "settings", "graphs"), VLLM_GRAPHS)
def test_graphs_of_vllm_by_its_modes(version: str, settings: dict[str, t.Any], graphs: tuple[bool, str]) -> None:
    asked = {"disable_cuda_graph": None, **settings}
    assert resolved("qwen3.5-122b-a10b-nvfp4-vllm", version, **asked)["disable_cuda_graph"] == graphs


@pytest.mark.parametrize(
    ("profile", "version", "settings", "mode"),
    [
        ("qwen3.5-122b-a10b-nvfp4-vllm", "0.17.1", {}, "align"),
        ("qwen3.5-122b-a10b-nvfp4-vllm", "0.17.1", {"mamba_cache_mode": "all"}, "align"),
        ("qwen3.5-122b-a10b-nvfp4-vllm", "0.17.1", {"enable_prefix_caching": False}, "none"),
        ("qwen3.5-122b-a10b-nvfp4-vllm", "0.17.1", {"enable_prefix_caching": False, "mamba_cache_mode": "all"}, "none"),
        ("nemotron-3-nano-30b-nvfp4-vllm", "0.25.1", {"enable_prefix_caching": True}, "all"),
        (
            "nemotron-3-nano-30b-nvfp4-vllm",
            "0.25.1",
            {"enable_prefix_caching": True, "mamba_cache_mode": "none"},
            "all",
        ),
        (
            "nemotron-3-nano-30b-nvfp4-vllm",
            "0.25.1",
            {"enable_prefix_caching": True, "mamba_cache_mode": "align"},
            "align",
        ),
    ],
)
def test_how_a_hybrids_states_are_kept_for_prefixes(
    profile: str, version: str, settings: dict[str, t.Any], mode: str
) -> None:
    assert resolved(profile, version, **settings)["mamba_cache_mode"][0] == mode


@pytest.mark.parametrize(
    ("version", "mode"), [("0.19.1", "all"), ("0.20.0", "align"), ("0.21.0", "align"), ("0.22.0", "all")]
)
def test_two_releases_keep_fewer_states_with_drafts(version: str, mode: str) -> None:
    drafts = {"method": "mtp", "num_speculative_tokens": 1}
    settings = {"enable_prefix_caching": True, "speculative_config": drafts}
    assert resolved("nemotron-3-nano-30b-nvfp4-vllm", version, **settings)["mamba_cache_mode"] == (mode, "default")


@pytest.mark.parametrize(("version", "off"), [("0.25.1", True), ("0.26.0", True), ("0.27.1", True), ("0.28.0", False)])
def test_a_hybrids_prefix_cache_is_on_from_0_28_on(version: str, off: bool) -> None:
    found = resolved("qwen3.8-27b-nvfp4-vllm", version, enable_prefix_caching=None)
    assert found["disable_radix_cache"] == (off, "default")


@pytest.mark.parametrize("version", ["0.5.13", "0.5.20", "0.5.23"])
@pytest.mark.parametrize("name", ["qwen3.6-35b-a3b-fp8", "gemma-4-26b-a4b-it", "deepseek-v4-flash-0731-vllm"])
def test_nobody_is_warned_of_kernels_that_the_engine_never_takes_by_itself(name: str, version: str) -> None:
    """Left open, attention and the runner of experts that are not NVFP4 are the engine's choice: on SM121 none for SM90 or SM100."""
    entry = {key: value for key, value in find(name).items() if key not in ("variants", "shapes", "origin")}
    entry |= {"engine": {"name": "sglang", "version": version}, "settings": {}}
    entry |= {"parallel": {"nodes": 2, "tp": 2}}
    kernels = {"moe_runner_backend", "attention_backend"}
    assert not [f for f in launch_plan(entry)["findings"] if kernels & set(f["names"])]


def test_what_an_unknown_setting_may_be_is_said_by_name() -> None:
    """A rule that hangs on a setting names the values with which it holds, not 'unknown'."""
    rule = next(r for r in rules.load_rules() if r.id == "attention.hopper-kernels")
    unknown = {("settings", "attention_backend"): ("fa4", "triton", "fa3")}
    (found,) = rules.evaluate([rule], {"settings": {}}, unknown).findings
    assert found.severity == "warning" and "fa4 or fa3 does not run on SM121" in found.message
