"""What happens to an instance: kept, started, or replaced as a whole; and what is said before anything is stopped."""

from __future__ import annotations

import copy
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import apply, rollout
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.serving import serving
from ansible_collections.dgxspark.cluster.tests.support.rollouts import Plain, in_cluster, served
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs


def test_nothing_there_is_a_start() -> None:
    assert rollout.decide(served(), [])["action"] == "start"


def test_the_same_plan_is_kept_unless_a_restart_is_wanted() -> None:
    there = in_cluster(served())
    nothing: Plain = {"restore": [], "policies": [], "stale": []}
    assert rollout.decide(served(), there) == {"action": "none", "old": served()["plan"], **nothing}
    again = rollout.decide(served(), there, restart=True)
    assert (again["action"], again["restore"]) == ("replace", [])


def test_another_plan_is_replaced_as_a_whole_and_can_be_put_back() -> None:
    old, new = served("glm-4.7-nvfp4"), served()
    found = rollout.decide(new, in_cluster(old))
    assert (found["action"], found["old"]) == ("replace", old["plan"])
    assert [made["metadata"]["name"] for made in found["stale"]] == [f"serve-default-launch-{old['plan'][:10]}"]
    # Workers first, and as we had applied them.
    assert found["restore"] == [*reversed(old["workers"]), *old["head"]]


@pytest.mark.parametrize("offline", [False, True])
def test_ranks_that_are_put_back_reach_what_they_reached(offline: bool) -> None:
    old = serving(inputs.plan(), inputs.fabric(4), {"image": inputs.PINNED, "hub_offline": offline})
    new = serving(inputs.plan(), inputs.fabric(4), {"image": inputs.PINNED, "hub_offline": not offline})
    (policy,) = (made for made in old["common"] if made["kind"] == "NetworkPolicy")
    there = copy.deepcopy(policy)
    there["metadata"] |= {"uid": "u", "resourceVersion": "7", "managedFields": [{}]}
    assert rollout.decide(new, [*in_cluster(old), there])["policies"] == [policy]
    assert rollout.decide(old, [*in_cluster(old), there])["policies"] == []


def test_old_ranks_keep_what_they_may_until_they_are_gone_and_get_it_back() -> None:
    """A new group of two has a Role for its two pods, which would leave the other two of the old group without."""
    small = serving(
        next(inputs.fitting("qwen3.5-397b-a17b-nvfp4", 2, "vf")), inputs.fabric(2), {"image": inputs.PINNED}
    )
    held = {"NetworkPolicy", "Role", "RoleBinding"}
    before, switched = rollout.apart(small["common"], "replace")
    assert {made["kind"] for made in switched} == held
    assert not held & {made["kind"] for made in before}
    assert sorted(map(str, before + switched)) == sorted(map(str, small["common"]))
    # There are no ranks, or only this plan's: all objects are applied first.
    for action in ("none", "start"):
        assert rollout.apart(small["common"], action) == (small["common"], [])
    old = served()
    there = [copy.deepcopy(made) for made in old["common"] if made["kind"] in held]
    for made in there:
        made["metadata"] |= {"uid": "u", "resourceVersion": "7", "managedFields": [{}]}
    back = rollout.decide(small, [*in_cluster(old), *there])["policies"]
    assert back == [made for made in old["common"] if made["kind"] in held]


def test_a_killed_run_is_taken_up_or_cleaned_up() -> None:
    mine, other = served(), served("glm-4.7-nvfp4")
    half = [made for made in in_cluster(mine) if not made["metadata"]["name"].endswith("rank0")]
    assert rollout.decide(mine, half)["action"] == "start"
    mixed = [*half, *(made for made in in_cluster(other) if made["metadata"]["name"].endswith("rank0"))]
    found = rollout.decide(mine, mixed)
    assert (found["action"], found["restore"]) == ("replace", [])


def test_ranks_that_are_leaving_are_not_taken_for_serving() -> None:
    there = in_cluster(served())
    there[0]["metadata"]["deletionTimestamp"] = "x"
    assert rollout.decide(served(), there)["action"] == "replace"


def test_fewer_ranks_than_before_are_another_group() -> None:
    made = next(inputs.fitting("qwen3.5-397b-a17b-nvfp4", 2, "vf"))
    small = serving(made, inputs.fabric(2), {"image": inputs.PINNED})
    assert rollout.decide(small, in_cluster(served()))["action"] == "replace"


def node(name: str, ready: str = "True", **spec: t.Any) -> Plain:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def test_nodes_that_ranks_could_not_go_to() -> None:
    nodes = [node("spark1"), node("spark2", "Unknown"), node("spark3", unschedulable=True), node("master")]
    said = rollout.unfit_nodes(served(), nodes)
    assert len(said) == 3
    assert "spark2: node spark2 is not ready" in said[0]
    assert "uncordon spark3" in said[1]
    assert "no node 'spark4' in the cluster (nodes: master, spark1, spark2, spark3)" in said[2]


@pytest.mark.parametrize(("free_gib", "short"), [(101.0, False), (100.2, False), (99.9, True), (3.0, True)])
def test_memory_is_measured_against_the_plan(free_gib: float, short: bool) -> None:
    said = rollout.short_of_memory({"mem_available_kib": int(free_gib * 1024 * 1024)}, 101.0, "spark1")
    assert bool(said) is short
    assert not said or f"spark1: {free_gib:.1f} GiB are free" in said[0]


def test_memory_that_nobody_measured_is_refused() -> None:
    with pytest.raises(CollectionError, match="MemAvailable is not known"):
        rollout.short_of_memory({}, 101.0, "spark1")
    assert rollout.short_of_memory({}, None, "spark1") == []


# --- what kubernetes.core's answer means --------------------------------------------------------------------------------

SPACE = {"kind": "Namespace", "metadata": {"name": "dgx"}}
MAP = {"kind": "ConfigMap", "metadata": {"name": "m", "namespace": "dgx"}}
NOT_THERE = {
    "changed": False,
    "error": {"msg": 'Failed to apply object: namespaces "dgx" not found', "reason": "Not Found"},
}


def test_each_object_is_reported() -> None:
    said = {
        "result": {"results": [{"changed": False}, {"changed": True, "diff": {"before": {"a": 1}, "after": {"a": 2}}}]}
    }
    found = apply.outcome([SPACE, MAP], said)
    assert found["changed"]
    assert found["objects"] == ["Namespace/dgx: unchanged", "ConfigMap/dgx/m: changed"]
    assert found["diff"][0]["before_header"] == "ConfigMap/dgx/m"


def test_what_cannot_be_judged_yet_would_be_made() -> None:
    said = {"result": {"results": [{"changed": True}, NOT_THERE]}}
    assert apply.outcome([SPACE, MAP], said)["objects"][1] == "ConfigMap/dgx/m: would be created"
    assert apply.outcome([MAP], NOT_THERE, [SPACE])["changed"]


def test_what_was_applied_to_an_object_that_is_being_deleted_is_not_applied() -> None:
    def stored(**metadata: str) -> dict[str, t.Any]:
        return {"changed": True, "result": {"metadata": {"name": "x", **metadata}}}

    gone = stored(deletionTimestamp="2026-01-01T00:00:00Z")
    assert apply.leaving([SPACE, MAP], {"result": {"results": [stored(), gone]}}) == ["ConfigMap/dgx/m"]
    assert apply.leaving([MAP], gone) == ["ConfigMap/dgx/m"]
    assert apply.leaving([MAP], stored()) == apply.leaving([MAP], NOT_THERE) == []
    words = 'configmaps "m" is forbidden: unable to create new content in namespace dgx because it is being terminated'
    refused = {"failed": True, "msg": f'Failed to apply object: b\'{{"message":"{words}","code":403}}\''}
    assert apply.leaving([SPACE, MAP], refused) == ["Namespace/dgx"]
    assert apply.leaving([MAP], {"failed": True, "msg": "forbidden"}) == []


def test_a_real_fault_is_one() -> None:
    with pytest.raises(CollectionError, match=r'ConfigMap/dgx/m: .*namespaces "dgx" not found'):
        apply.outcome([MAP], NOT_THERE, [])
    fault = {"changed": False, "error": {"msg": "Failed to apply object: spec.colour: unknown"}}
    with pytest.raises(CollectionError, match=r"spec\.colour"):
        apply.outcome([SPACE, MAP], {"result": {"results": [{"changed": False}, fault]}})


def test_what_serves_is_kept_as_it_can_be_served_again() -> None:
    old, new = served("glm-4.7-nvfp4"), served()
    there = [*in_cluster(old), *(each for each in old["common"] if each["kind"] == "Service")]
    service = next(each for each in there if each["kind"] == "Service" and each["spec"].get("clusterIP") != "None")
    service["spec"] = {**service["spec"], "clusterIP": "10.43.0.9", "clusterIPs": ["10.43.0.9"]}
    kept = rollout.kept(there, "default")
    assert (kept["plan"], kept["bounds"]["start_s"]) == (old["plan"], pytest.approx(old["bounds"]["start_s"], abs=10))
    for part in ("head", "workers"):
        again, before = ({made["metadata"]["name"]: made["spec"] for made in each[part]} for each in (kept, old))
        assert again == before
    assert not [made for made in (*kept["common"], *kept["head"]) if "uid" in made["metadata"] or "status" in made]
    assert not [made for made in kept["common"] if made.get("spec", {}).get("clusterIP") == "10.43.0.9"]
    # Where another model serves now, it replaces that one and removes its files; where it serves itself, it does nothing.
    assert rollout.decide(kept, in_cluster(new))["action"] == "replace"
    assert len(rollout.decide(kept, in_cluster(new))["stale"]) == len(
        [o for o in new["common"] if o["kind"] == "ConfigMap"]
    )
    nothing: Plain = {"restore": [], "policies": [], "stale": []}
    assert rollout.decide(kept, in_cluster(old)) == {"action": "none", "old": old["plan"], **nothing}


def test_where_nothing_serves_nothing_is_kept() -> None:
    assert rollout.kept([], "default") == {
        "name": "serve-default",
        "plan": None,
        "head": [],
        "workers": [],
        "common": [],
        "nodes": {},
        "bounds": {"start_s": 0},
    }
