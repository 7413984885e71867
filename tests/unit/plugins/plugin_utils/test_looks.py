"""When knowledge was last held against its sources, and what is newer than it."""

from __future__ import annotations

import datetime
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge, looks
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import release

LOOKED = knowledge.load("looks")
PARTS = looks.parts()


def test_every_kind_of_knowledge_has_the_day_of_its_last_look() -> None:
    kinds = {path.stem for path in (knowledge.SHIPPED / "schema").glob("*.json")} - {"looks"}
    assert set(LOOKED) == kinds
    assert all(datetime.date.fromisoformat(entry["looked"]) for entry in LOOKED.values())


@pytest.mark.parametrize(("part", "newest"), PARTS["newest"].items())
def test_a_part_is_newer_only_than_an_older_one(part: str, newest: str) -> None:
    assert not looks.newer_parts({part: newest}, PARTS)
    first = str(release(newest)).split(".")[0]
    said = looks.newer_parts({part: f"{int(first) + 1}.0-x"}, PARTS)
    assert newest in said[part] and PARTS["looked"] in said[part]


@given(st.dictionaries(st.sampled_from([*PARTS["newest"], "os"]), st.text(max_size=30), max_size=4))
def test_no_version_is_a_crash_and_what_is_said_is_plain(versions: dict[str, str]) -> None:
    assert all(text.isprintable() for text in looks.newer_parts(versions, PARTS).values())


def newer(**platform: str) -> list[dict[str, t.Any]]:
    plan = launch_plan("glm-4.7-nvfp4", {"platform": platform})
    return [f for f in plan["findings"] if f["rule"] == "platform.newer"]


def test_a_plan_says_once_what_is_newer_than_the_knowledge() -> None:
    (said,) = newer(kernel="8.1.0-1003-nvidia", driver="999.1", nccl="2.28.9")
    assert said["severity"] == "info" and said["names"] == ["kernel", "driver"]
    assert "8.1.0-1003-nvidia is newer" in said["message"] and "999.1" in said["message"]
    assert newer(kernel="6.17.0-1032-nvidia", driver="580.178.04") == []
