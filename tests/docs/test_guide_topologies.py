"""What the guide on switch and rings says can and cannot be served is what the plan says."""

from __future__ import annotations

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.environment import Options, environment
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan
from ansible_collections.dgxspark.cluster.tests.support.cabled import cabled
from ansible_collections.dgxspark.cluster.tests.unit import guide

DIVIDES, OPPOSITE = (" ".join(block.split()) for block in guide.blocks("guide_topologies", "text"))


def test_a_degree_of_three_is_refused_as_the_guide_prints_it() -> None:
    with pytest.raises(CollectionError) as told:
        launch_plan("qwen3.5-397b-a17b-nvfp4", {}, {"parallel": {"nodes": 3, "tp": 3}})
    assert DIVIDES in str(told.value)


def test_on_a_ring_of_four_opposites_and_rows_of_three_are_refused() -> None:
    ring = cabled("ring", 4)
    with pytest.raises(CollectionError) as told:
        environment([ring[0], ring[2]], Options(bootstrap="eth0"))
    assert str(told.value).endswith(OPPOSITE)
    with pytest.raises(CollectionError, match="spark3: no cable leads to spark1"):
        environment(ring[:3], Options(bootstrap="eth0"))
    for members in (ring[:2], ring):
        made = environment(members, Options(bootstrap="eth0"))
        routed = {variables.get("NCCL_IB_SUBNET_AWARE_ROUTING") for variables in made.values()}
        assert routed == ({"1"} if len(members) > 2 else {None})
        assert {variables.get("NCCL_ALGO") for variables in made.values()} == ({"Ring"} if len(members) > 2 else {None})


def test_any_two_of_a_ring_of_three_are_neighbours() -> None:
    ring = cabled("ring", 3)
    for pair in ((0, 1), (1, 2), (0, 2)):
        assert environment([ring[number] for number in pair], Options(bootstrap="eth0"))
