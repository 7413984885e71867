# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words of a command line as the engines' own parsers read them: abbreviations, and whole numbers with a suffix."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.recipes import recipe_flags
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.vocabulary.arguments import load_tables

PARSERS = {"vllm": load_tables().parsers["vllm-0.33.0"], "sglang": load_tables().parsers["sglang-0.5.23"]}


def given(engine: str, *words: str) -> recipe_flags.Given:
    (one,) = recipe_flags.read_flags(words, PARSERS[engine])[1]
    return one


@pytest.mark.parametrize(
    ("engine", "text", "value"),
    [
        ("vllm", "32k", 32000),
        ("vllm", "25.6k", 25600),
        ("vllm", "32K", 32768),
        ("vllm", "1m", 10**6),
        ("vllm", "1M", 2**20),
        ("vllm", "2.5g", 25 * 10**8),
        ("vllm", "1.5K", "1.5K"),
        ("vllm", "1Ki", "1Ki"),
        ("vllm", "1.5", "1.5"),
        ("sglang", "32k", 32000),
        ("sglang", "25.6k", 25600),
        ("sglang", "1M", 10**6),
        ("sglang", "1.5M", 15 * 10**5),
        ("sglang", "32Ki", 32768),
        ("sglang", "1.5Ki", "1.5Ki"),
        ("sglang", "128K", "128K"),  # refused there, with a hint at the two forms
        ("sglang", "1m", "1m"),
    ],
)
def test_a_suffix_is_the_engine_s_own(engine: str, text: str, value: t.Any) -> None:
    """A text that stays is one that the engine's parser refuses."""
    flag = {"vllm": "--max-num-batched-tokens", "sglang": "--context-length"}[engine]
    assert given(engine, flag, text).value == value
    assert recipe_flags.typed(text, "int", engine) == value


@pytest.mark.parametrize(
    ("engine", "word", "name"),
    [
        ("vllm", "--gpu-memory-util", "gpu-memory-utilization"),
        ("vllm", "--gpu_memory_util", "gpu-memory-utilization"),
        ("sglang", "--mem-fraction", "mem-fraction-static"),
    ],
)
def test_an_abbreviation_of_one_flag_is_that_flag(engine: str, word: str, name: str) -> None:
    one = given(engine, word, "0.8")
    assert (one.name, one.value, one.known, one.fault) == (name, 0.8, True, "")


def test_an_abbreviation_turns_off_what_its_flag_turns_off() -> None:
    one = given("vllm", "--no-enable-prefix-cach")
    assert (one.name, one.value, one.known, one.fault) == ("enable-prefix-caching", False, True, "")


@pytest.mark.parametrize(
    ("engine", "word", "names"),
    [
        ("vllm", "--max-num-b", None),
        ("vllm", "--max-num", ["--max-num-batched-tokens", "--max-num-seqs"]),
        ("sglang", "--cuda-graph", ["--cuda-graph-"]),
    ],
)
def test_an_abbreviation_of_several_is_refused_with_their_names(
    engine: str, word: str, names: list[str] | None
) -> None:
    fault = given(engine, word, "8").fault
    assert bool(fault) == (names is not None)
    for name in names or []:
        assert name in fault
