"""A plan with argument lists: what cannot be passed blocks it, what can is in every rank's command."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.vocabulary.builder import builder
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan
from ansible_collections.dgxspark.cluster.tests.unit.kube_inputs import fabric

PROFILE = "glm-4.7-nvfp4"
HOSTS = ["spark1", "spark2", "spark3", "spark4"]


def test_every_rank_has_its_own_command() -> None:
    ranks = launch_plan(PROFILE, {"hosts": HOSTS})["ranks"]
    assert [rank["host"] for rank in ranks] == HOSTS
    for number, rank in enumerate(ranks):
        argv = rank["argv"]
        assert argv[:3] == ["python3", "-m", "sglang.launch_server"]
        assert argv[argv.index("--node-rank") + 1] == str(number)
    assert len({tuple(w for i, w in enumerate(r["argv"]) if r["argv"][i - 1] != "--node-rank") for r in ranks}) == 1


def test_the_fabric_s_variables_override_a_profile_s() -> None:
    own = {"environment": {"NCCL_IB_HCA": "mlx5_0", "OMP_NUM_THREADS": "8"}}
    ranks = launch_plan(PROFILE, {"hosts": HOSTS, "fabric": fabric(4)}, own)["ranks"]
    assert all(rank["env"]["NCCL_IB_HCA"].startswith("=") for rank in ranks)
    assert {rank["env"]["OMP_NUM_THREADS"] for rank in ranks} == {"8"}


def test_a_setting_that_the_version_does_not_know_blocks_the_plan() -> None:
    plan = launch_plan(PROFILE, {"hosts": HOSTS}, {"settings": {"cuda_graph_backend_prefill": "disabled"}})
    assert plan["verdict"] == "blocked"
    found = [f for f in plan["findings"] if f["rule"].startswith("arguments.")]
    assert [(f["rule"], f["severity"], f["names"]) for f in found] == [
        ("arguments.unknown", "error", ["cuda_graph_backend_prefill"])
    ]
    assert "0.5.14" in found[0]["message"]
    assert [rank["argv"] for rank in plan["ranks"]] == [[]] * 4


def test_a_release_without_a_table_does_not_block_the_plan() -> None:
    engine = {"version": "0.5.99", "versions": "", "image": "mine:latest"}
    settings = {"moe_runner_backend": "flashinfer_cutlass", "their_new_flag": 3}
    plan = launch_plan(PROFILE, {"hosts": HOSTS}, {"variant": "plain", "engine": engine, "settings": settings})
    found = {f["rule"]: f for f in plan["findings"] if f["rule"].startswith(("arguments.", "engine."))}
    assert plan["verdict"] == "unproven" and plan["not_judged"]["flags"] == "no table of sglang 0.5.99"
    assert found["engine.newer"]["severity"] == "info" and "arguments.table" not in found
    assert "SGLang 0.5.99 is newer than the newest table, 0.5.23" in found["engine.newer"]["message"]
    assert "inspect_image" in found["engine.newer"]["remedy"]
    assert found["arguments.passed-on"]["severity"] == "warning"
    assert found["arguments.passed-on"]["names"] == ["their_new_flag"]
    argv = plan["ranks"][0]["argv"]
    assert argv[argv.index("--their-new-flag") + 1] == "3"


def test_ray_is_left_out_and_that_is_said() -> None:
    overrides = {
        "settings": {"distributed_executor_backend": "ray", "gpu_memory_utilization": None},
        "parallel": {"nodes": 2, "tp": 2},
    }
    plan = launch_plan("qwen3.5-122b-a10b-nvfp4-vllm", {"hosts": HOSTS[:2]}, overrides)
    said = next(f for f in plan["findings"] if f["rule"] == "arguments.left-out")
    assert said["severity"] == "warning"
    assert "multiprocessing" in said["message"]
    assert all("ray" not in rank["argv"] for rank in plan["ranks"])
    assert plan["verdict"] == "unproven"
    kept = launch_plan("qwen3.5-122b-a10b-nvfp4-vllm", {}, {"settings": {"distributed_executor_backend": "mp"}})
    argv = kept["ranks"][0]["argv"]
    assert argv[argv.index("--distributed-executor-backend") + 1] == "mp"


def test_an_owner_may_pass_on_what_the_version_does_not_know() -> None:
    overrides = {"settings": {"their_new_flag": 3}, "accept": ["arguments.unknown"]}
    plan = launch_plan(PROFILE, {"hosts": HOSTS}, overrides)
    assert plan["verdict"] == "unproven"
    assert "--their-new-flag" in plan["ranks"][0]["argv"]


def test_an_answer_that_is_kept_is_the_same() -> None:
    build = builder()
    question = {"model": "m", "tp_size": 4, "mem_fraction_static": 0.8}
    first = build("sglang", "0.5.12", question)
    assert build("sglang", "0.5.12", dict(question)) == first
    assert build("sglang", "0.5.12", {**question, "tp_size": 2}) != first
