"""Versions as owners and images write them."""

from __future__ import annotations

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import versions
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import (
    find_profile,
    load_tables,
    resolve_profile,
)


@pytest.mark.parametrize(
    ("version", "wanted", "holds"),
    [
        ("0.5.12.post1", "==0.5.12.post1", True),
        ("0.5.12", "==0.5.12.post1", False),
        ("0.5.12.post1", "==0.5.12", False),
        ("0.5.12.post1", ">=0.5.12,<0.5.13", True),
        ("0.5.12.post1", "<0.5.13", True),
        ("0.5.12.post1", ">=0.5.13", False),
        ("v0.5.12.post2-cu130", ">=0.5.12.post1", True),
        ("0.5.12.post1.dev3+gabc", "==0.5.12.post1", True),
        ("0.5.12-dev", "==0.5.12", True),
        ("latest", ">=0.5.12", True),
    ],
)
def test_a_post_release_is_a_release_after_its_base(version: str, wanted: str, holds: bool) -> None:
    assert versions.matches(version, wanted) is holds


def test_releases_are_ordered_and_told_apart() -> None:
    order = ["0.5.11", "0.5.12rc1", "0.5.12.post1", "0.5.12.post2", "0.5.13"]
    assert sorted(order, key=versions.release) == order
    assert not versions.same_release("0.5.12", "0.5.12.post1")
    assert versions.same_release("0.5.12.post1", "v0.5.12.post1+cu130")
    assert versions.names_release("0.5.12.post1")


def test_a_profile_on_a_post_release_is_in_its_own_range_and_has_its_base_s_table() -> None:
    entry = {
        "id": "mine", "title": "mine", "model": "a/b", "proven": "untested", "parallel": {"nodes": 1}, "settings": {}, "precision": {},
        "engine": {"name": "sglang", "version": "0.5.12.post1", "versions": "==0.5.12.post1"},
        "source": [{"of": "settings", "from": "here", "verified": "inferred"}],
    }  # fmt: skip
    assert resolve_profile(find_profile(entry)).engine.version == "0.5.12.post1"
    nearest = load_tables().nearest("sglang", "0.5.12.post1")
    assert nearest is not None and nearest.version == "0.5.12"
