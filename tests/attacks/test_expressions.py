"""Regular expressions of models' files: the same answers as Python's own matcher, in bounded time."""

from __future__ import annotations

import contextlib
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import Unreadable
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.expressions import LONGEST, Expression
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model.config_precision import Names

NAME = "model.layers.11.mlp.experts.3.down_proj" * 7
ENDLESS = [
    "(.+)+!",
    "(a|a)*(a|aa)+b!",
    "(.*)*(.*)*(.*)*!",
    "((.+)+)+!" * 10,
    ".*.*.*.*.*.*.*.*.*!",
    "(?:(?:.+)+,)+(?=x(.+)+!)",
    "(?<!z)(.+)+!",
    "(\\w+\\.?)+!",
    "(.+)+!" * 49,
    "((((((((.*)*)*)*)*)*)*)*)*!",
    "(.{1,300}){1,300}!",
    "((((a?){300}){300}){300}){300}!",
    "(" * 150 + "a*" + ")" * 140 + "*)" * 10,
]


@pytest.mark.parametrize("text", ENDLESS)
def test_no_expression_takes_long(text: str) -> None:
    began = time.process_time()
    for name in (NAME[:LONGEST], "a" * LONGEST):
        with contextlib.suppress(Unreadable):
            Expression(text, "config.json").match(name)
    assert time.process_time() - began < 5


def test_a_checkpoint_s_list_of_modules_is_read_by_it() -> None:
    assert not Names(["re:(.+)+!"]).have("model.layers.11.mlp.experts.3.down_proj", ["", "model."])


@pytest.mark.parametrize("text", ["(", "a" * 301, "(a)\\1", "a{1,99999}", "[z-a]", "(?P<x>a)(?P=x)"])
def test_what_is_no_expression_or_needs_too_much_is_refused_by_name(text: str) -> None:
    with pytest.raises(Unreadable, match=r"config\.json"):
        Expression(text, "config.json").match("a" * 200)


atoms = st.sampled_from(["a", "b", ".", "\\.", "[ab]", "[^a]", "\\w", "\\d", "^", "$", "\\b", "a|b", ""])
trees = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds(lambda x, y: x + y, inner, inner),
        st.builds(lambda x: f"({x})", inner),
        st.builds(
            lambda x, how: f"(?:{x}){how}", inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?", "{2,}"])
        ),
        st.builds(lambda x, how: f"({how}{x})", inner, st.sampled_from(["?=", "?!", "?:"])),
        st.builds(lambda x, y: f"(?:{x}|{y})", inner, inner),
    ),
    max_leaves=6,
)


@given(trees, st.text("ab.1_", max_size=7))
def test_it_says_what_python_says(text: str, name: str) -> None:
    own = Expression(text, "x")
    own._simple = False
    assert own.match(name) is (re.match(text, name) is not None)


def test_lists_of_real_checkpoints_read_as_before() -> None:
    for text in (
        r".*self_attn.*",
        r".*\.mlp\.gate$",
        r"^(?!.*experts).*",
        r"vision_tower.*",
        r"model\.layers\.(0|1|2)\..*",
        r"(?i).*LM_head",
    ):
        for name in ("model.layers.1.self_attn.q_proj", "lm_head", "model.layers.3.mlp.gate", "vision_tower.x"):
            assert Expression(text, "x").match(name) is (re.match(text, name) is not None)
