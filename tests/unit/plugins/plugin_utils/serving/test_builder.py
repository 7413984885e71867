"""A plan with argument lists: what cannot be said blocks it, what can stands in every rank."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.builder import builder
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan

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


def test_a_setting_that_the_version_does_not_know_blocks_the_plan() -> None:
    plan = launch_plan(PROFILE, {"hosts": HOSTS}, {"settings": {"cuda_graph_backend_prefill": "disabled"}})
    assert plan["verdict"] == "blocked"
    found = [f for f in plan["findings"] if f["rule"].startswith("arguments.")]
    assert [(f["rule"], f["severity"], f["names"]) for f in found] == [
        ("arguments.unknown", "error", ["cuda_graph_backend_prefill"])
    ]
    assert "0.5.14" in found[0]["message"]
    assert [rank["argv"] for rank in plan["ranks"]] == [[]] * 4


def test_a_version_without_a_table_blocks_the_plan() -> None:
    built = builder()("sglang", "0.5.99", {"model": "m"})
    assert built.argv == ()
    assert [(f.id, f.severity) for f in built.findings] == [("arguments.version", "error")]
    assert "0.5.23" in built.findings[0].message


def test_an_answer_that_is_kept_is_the_same() -> None:
    build = builder()
    question = {"model": "m", "tp_size": 4, "mem_fraction_static": 0.8}
    first = build("sglang", "0.5.12", question)
    assert build("sglang", "0.5.12", dict(question)) == first
    assert build("sglang", "0.5.12", {**question, "tp_size": 2}) != first
