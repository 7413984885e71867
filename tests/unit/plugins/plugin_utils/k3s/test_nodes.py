"""The cluster's nodes against their plans."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s.nodes import problems
from ansible_collections.dgxspark.cluster.tests.support.k3s_nodes import FIRST, PLANS, node


def test_all_well() -> None:
    assert problems({"items": [FIRST, node("spark2"), node("another")]}, PLANS) == []


@pytest.mark.parametrize(
    ("second", "needle"),
    [
        ([], "has no node spark2"),
        ([node("spark2", ready="False")], "container runtime is down"),
        ([node("spark2", version="v1.36.3+k3s1")], "its kubelet is v1.36.3+k3s1"),
        ([node("spark2", address="10.0.0.2")], "10.0.0.2, not 192.0.2.12"),
        ([{"metadata": {"name": "spark2"}}], "no reason is given"),
    ],
)
def test_what_is_wrong_is_told_with_the_log_to_look_at(second: list[t.Any], needle: str) -> None:
    (told,) = map(str, problems({"items": [FIRST, *second]}, PLANS))
    assert told.startswith("spark2: ") and needle in told and "journalctl -u k3s-agent" in told


@pytest.mark.parametrize("answer", [None, [], {"kind": "Status"}, {"items": None}])
def test_an_answer_that_is_no_list_of_nodes_is_refused(answer: t.Any) -> None:
    with pytest.raises(CollectionError, match="not a list of nodes"):
        problems(answer, PLANS)
