from __future__ import annotations

import typing as t

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import role_arguments
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model.memory import Free
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import nodes, plan
from ansible_collections.dgxspark.cluster.tests.support.properties import examples

FOUR = ["spark1", "spark2", "spark3", "spark4"]
ULTRA = "nemotron-3-ultra-550b-nvfp4"


def node(gib: float | None = 110.0, kernel: str = "6.17.0-1021-nvidia", **vf: t.Any) -> dict[str, t.Any]:
    """What roce_info returns for a Spark with one VF."""
    one = {"index": 0, "pci": "0000:01:01.0", "netdev": {"name": "enp1s0f0v0"}, **vf}
    kib = None if gib is None else round(gib * 2**20)
    return {"kernel": kernel, "mem_available_kib": kib, "functions": [{"pci": "0000:01:00.0", "vfs": [one]}]}


def planned(shown: dict[str, t.Any], **cluster: t.Any) -> tuple[dict[str, t.Any], dict[str, dict[str, t.Any]]]:
    made = plan.launch_plan(ULTRA, {"hosts": FOUR, "nodes": shown, **cluster})
    return made, {finding["rule"]: finding for finding in made["findings"]}


def test_the_poorest_node_counts() -> None:
    made, found = planned(dict(zip(FOUR, (node(112), node(103.5), node(111), node(110)), strict=True)))
    assert made["memory"]["free_gib"] == 103.5
    assert made["memory"]["free_assumed"] is False
    assert not {rule for rule in found if rule.startswith("memory.node-")} | ({"memory.assumed"} & set(found))


def test_a_node_that_did_not_answer_counts_with_the_default_and_is_named() -> None:
    made, found = planned({host: node(110) for host in FOUR[:3]})
    assert made["memory"]["free_gib"] == 101
    assert made["memory"]["free_most_gib"] == 110  # the others are known
    assert made["memory"]["free_assumed"] is True
    assert "spark4 did not answer" in found["memory.node-unmeasured"]["message"]
    assert "default for an unmeasured Spark" in found["memory.assumed"]["message"]


def test_where_nobody_was_asked_nobody_is_named() -> None:
    made, found = planned({})
    assert made["memory"]["free_gib"] == 101
    assert "memory.assumed" in found
    assert "memory.node-unmeasured" not in found


@pytest.mark.parametrize(
    "busy", [{"place": {"state": "pod", "netns": "/run/netns/cni-1", "pids": 2}}, {"users": ["python3 (4711)"]}]
)
def test_what_a_running_model_leaves_is_not_taken_for_free_memory(busy: dict[str, t.Any]) -> None:
    shown = {host: node(110) for host in FOUR} | {"spark2": node(8.5, **busy)}
    made, found = planned(shown)
    assert made["memory"]["free_gib"] == 101
    assert made["verdict"] == "proven"
    said = found["memory.node-busy"]
    assert said["severity"] == "warning"
    assert "spark2" in said["message"]
    assert "8.5 GiB" in said["message"]
    assert "k8s_dgx_free_gib" in said["remedy"]


def test_a_rank_alone_has_no_vf_and_its_memory_is_not_taken_for_free_either() -> None:
    """One Spark, planned a second time while it serves: the same plan, and no refusal of what is running."""
    profile = "gpt-oss-120b-vllm"
    alone = {"hosts": ["spark1"]}
    first = plan.launch_plan(profile, alone | {"nodes": {"spark1": node(110)}})
    again = plan.launch_plan(profile, alone | {"nodes": {"spark1": node(20) | {"ranks": ["rank0 (4711)"]}}})
    assert first["verdict"] != "blocked" and again["verdict"] == first["verdict"]
    assert (again["settings"], again["ranks"]) == (first["settings"], first["ranks"])
    assert "rank0 (4711)" in next(each["message"] for each in again["findings"] if each["rule"] == "memory.node-busy")


def test_the_owner_knows_better() -> None:
    shown = {host: node(8.5, place={"state": "pod", "pids": 2}) for host in FOUR}
    made, found = planned(shown, free_gib=112.0, taken_gib={"spark3": 4.0})
    assert made["memory"]["free_gib"] == 108
    assert "memory.node-busy" not in found
    assert made["memory"]["free_assumed"] is False


SPECS = yaml.safe_load((role_arguments.ROLES / "k8s_dgx/meta/argument_specs.yml").read_text("utf-8"))["argument_specs"]
SPEC = SPECS["main"]["options"]["k8s_dgx_free_gib"]


@given(st.integers(90, 110), st.sampled_from([int, float, str]), st.booleans())
@settings(max_examples=examples(10))
def test_free_memory_is_one_number_or_by_host_as_a_number_or_as_minus_e_gives_it(
    amount: int, form: type, by_host: bool
) -> None:
    """The role, and with it `serve`, takes what the plan and `models` take, and means the same by it."""
    told = dict.fromkeys(FOUR, form(amount)) if by_host else form(amount)
    taken = ArgumentSpecValidator({"free": {"type": SPEC["type"]}}).validate({"free": told})
    assert not taken.error_messages
    made, _found = planned({}, free_gib=taken.validated_parameters["free"])
    assert made["memory"]["free_gib"] == amount


@pytest.mark.parametrize(
    "told", ["much", -1, True, [110], {"spark1": None}, float("inf"), "nan", {"spark1": "\x1b[31m"}]
)
def test_free_memory_that_is_no_amount_is_refused_in_one_sentence(told: object) -> None:
    with pytest.raises(CollectionError, match=r"^cluster: free_gib: .* is not a number of GiB, 0 or more\.$") as wrong:
        planned({}, free_gib=told)
    assert "\x1b" not in str(wrong.value)


def test_a_full_node_without_a_model_is_believed_and_named() -> None:
    """Better a refused plan than eight minutes of loading: something else holds the memory."""
    made, found = planned({host: node(110) for host in FOUR} | {"spark2": node(40)})
    assert made["memory"]["free_gib"] == 40
    assert made["verdict"] == "blocked"
    assert "memory.weights-too-large" in found
    assert "spark2 has 40.0 GiB" in found["memory.node-full"]["message"]


def test_nodes_that_are_no_ranks_do_not_count() -> None:
    made = plan.launch_plan(
        ULTRA, {"hosts": [*FOUR, "spark5"], "nodes": {h: node(110) for h in FOUR} | {"spark5": node(9)}}
    )
    assert made["memory"]["free_gib"] == 110


def test_a_bad_kernel_is_found_on_the_nodes_that_run_it() -> None:
    shown = {host: node(110) for host in FOUR} | {"spark3": node(110, "7.0.0-1019-nvidia")}
    made, found = planned(shown)
    said = found["platform.kernel-7.0.0-1019"]
    assert said["message"].startswith("spark3: ")
    assert said["severity"] == "warning"
    assert "kho=off" in said["message"]  # the command line was not read
    assert made["verdict"] != "blocked"
    assert planned(shown, platform={"cmdline": "quiet"})[0]["verdict"] == "blocked"
    for platform in ({"cmdline": "quiet kho=off"}, {"kernel": "6.17.0-1021-nvidia"}):
        assert "platform.kernel-7.0.0-1019" not in planned(shown, platform=platform)[1]


@pytest.mark.parametrize(
    ("shown", "needle"), [({"spark1": {"kernel": 7}}, "nodes.spark1"), (["spark1"], "nodes: a dictionary")]
)
def test_what_is_no_node_is_one_error(shown: t.Any, needle: str) -> None:
    with pytest.raises(CollectionError, match=needle):
        planned(shown)


GIB = st.floats(60, 120)


@given(st.dictionaries(st.sampled_from(FOUR), GIB), st.dictionaries(st.sampled_from(FOUR), st.floats(0, 20)))
def test_knowing_more_nodes_only_narrows_what_is_free(free: dict[str, float], taken: dict[str, float]) -> None:
    usual = Free(101.0, 115.8)
    found = nodes.poorest(free, taken, FOUR, usual)
    assert found.sure <= found.most
    assert all(found.most <= free[host] - taken.get(host, 0.0) for host in free)
    whole = nodes.poorest(dict.fromkeys(FOUR, 108.0) | free, taken, FOUR, usual)
    assert whole.sure == whole.most
