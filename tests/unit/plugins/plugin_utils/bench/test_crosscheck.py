"""Which of the arena's tests a server's context allows, and that they are Spark Arena's."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.crosscheck import (
    ARENA_ARGUMENTS,
    ARENA_DEPTHS,
    ARENA_LEVELS,
    command,
    fitting,
)


def listed(most: t.Any) -> t.Any:
    return {"data": [{"id": "other", "max_model_len": 10}, {"id": "m", "max_model_len": most}]}


@pytest.mark.parametrize(
    ("most", "deepest"), [(262144, 100000), (102176, 100000), (102175, 65535), (32768, 16384), (2176, 0)]
)
def test_contexts_that_the_model_lacks_are_left_out(most: int, deepest: int) -> None:
    assert fitting(ARENA_DEPTHS, listed(most), "m") == tuple(each for each in ARENA_DEPTHS if each <= deepest)


anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["data", "id", "max_model_len"]), inner)
    ),
)


@given(anything)
def test_a_server_that_does_not_state_its_context_gets_all(said: t.Any) -> None:
    assert fitting(ARENA_DEPTHS, said, "m") == ARENA_DEPTHS


def test_the_tool_is_told_what_the_arena_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    argv = " ".join(command("http://h/v1", "m", ARENA_LEVELS, ARENA_ARGUMENTS, False, ARENA_DEPTHS))
    for said in (
        "--depth 0 4096 8192 16384 32768 65535 100000", "--concurrency 1 2 5 10", "--pp 2048", "--tg 128", "--enable-prefix-caching",
    ):  # fmt: skip
        assert said in argv
