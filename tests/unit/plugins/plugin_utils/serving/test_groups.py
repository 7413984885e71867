"""Groups side by side: who is in which, which division suits a traffic, and what each is served with."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import launch_plan
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import groups
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.groups import Division

PROFILE = "qwen3.8-flash-next-nvfp4-vllm"


@pytest.fixture(scope="module")
def found() -> list[Division]:
    return groups.divisions(8, lambda sparks: launch_plan(PROFILE, groups.overrides_of({}, sparks)))


@given(st.integers(1, 16), st.integers(-1, 17))
def test_groups_are_equal_disjoint_and_of_neighbours(sparks: int, count: int) -> None:
    hosts = [f"spark{n}" for n in range(sparks)]
    if count < 1 or sparks % count:
        with pytest.raises(CollectionError, match="k8s_dgx_replicas"):
            groups.members(hosts, count)
        return
    made = groups.members(hosts, count)
    assert [host for group in made for host in group] == hosts
    assert {len(group) for group in made} == {sparks // count}


def test_the_published_case(found: list[Division]) -> None:
    """capetron/gb10-cluster-bench on eight: one group is faster for one user (48.5 to 36.0), four make more for many (1364 to 816)."""
    assert [one.groups for one in found] == [1, 2, 4, 8]
    one, four, eight = found[0], found[2], found[3]
    assert (one.total(1) or 0) > (four.total(1) or 0) and (four.most or 0) > (one.most or 0)
    # Eight in each of four groups are its 32 users: 623.8 tokens/s.
    assert four.total(32) == four.most == pytest.approx(623.8, rel=0.3)
    assert "Weights" in eight.refused
    assert groups.choose(found, "single") == one and groups.choose(found, "throughput") == four
    assert one.total(64) is None  # nobody guesses
    lines = groups.table(found, four)
    assert len({line.index("8 IN EACH") for line in lines[:1]}) == 1 and lines[3].endswith("<- chosen")


@given(
    st.lists(st.tuples(st.floats(1, 100), st.floats(1, 300), st.floats(1, 900)), min_size=1, max_size=4),
    st.sampled_from(["single", "agents", "throughput", "mixed"]),
)
def test_the_chosen_one_is_not_beaten_by_another_in_everything(speeds: list[tuple[float, ...]], shape: str) -> None:
    all_of_them = [Division(2**n, 8 >> n, dict(zip(groups.LEVELS, each, strict=True))) for n, each in enumerate(speeds)]
    chosen = groups.choose(all_of_them, shape)

    def figures(one: Division) -> list[float]:
        return [one.total(1) or 0, one.total(4) or 0, one.most or 0]

    assert not any(
        all(a > b * (1 + 1e-9) for a, b in zip(figures(each), figures(chosen), strict=True)) for each in all_of_them
    )


def test_what_cannot_be_chosen_is_said() -> None:
    unknown = Division(1, 2, {})
    with pytest.raises(CollectionError, match="k8s_dgx_replicas"):
        groups.choose([unknown], "mixed")
    with pytest.raises(CollectionError, match="too large"):
        groups.choose([Division(1, 2, {}, refused="it is too large.")], "mixed")
    with pytest.raises(CollectionError, match="traffic shape"):
        groups.choose([unknown], "many")


@given(st.integers(1, 4), st.sampled_from([{}, {"name": "coder", "vf_index": 2}]))
def test_each_group_is_an_instance_of_its_own(count: int, own: dict[str, t.Any]) -> None:
    divided = groups.members([f"spark{n}" for n in range(2 * count)], count)
    made = groups.instances(divided, {"instance": own, "settings": {"a": 1}}, "present")
    assert len({one.name for one in made}) == count
    for one in made:
        laid = one.variables["k8s_dgx_overrides"]
        assert laid["settings"] == {"a": 1} and laid["parallel"] == {"nodes": 2, "tp": 2}
        assert laid["instance"] == {**own, "name": one.name}
    if count == 1:
        assert made[0].name == own.get("name", "default")
