"""A signature is found cheaply: the text that a matching line must contain is derived from its pattern, never wrongly."""

from __future__ import annotations

import re
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.signatures import (
    Matcher,
    Signature,
    compile_patterns,
    needed,
)
from ansible_collections.dgxspark.cluster.tests.unit.nccl_read import SIGNATURES


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (r"NET/IB\w* ?: No device found", (": No device found",)),
        (r"failed with (?:61\b|.*errno 61\b)|local GID ::,", ("failed with ", "local GID ::,")),
        (r"Cuda failures? '(?P<e>[^']+)'", ("Cuda failure",)),
        (r"a\.b\[c\] here", ("a.b[c] here",)),
        (r"abcd{2}ef", None),
        (r"[^|]four|x\|more", ("four", "x|more")),
        (r"(?:one|two)", None),
        (r"long enough|(?:x)", None),
        (r"(?i)long enough", None),
        (r"[]|)(]long (?:[)]|\)) tail", ("long ",)),
    ],
)
def test_what_a_line_must_hold(pattern: str, texts: tuple[str, ...] | None) -> None:
    assert needed(pattern) == texts


@given(st.from_regex(r"[a-d ]{0,6}(?:x[ab]?|y)?[a-d]{4,8}(?:\\d)?", fullmatch=True), st.data())
def test_no_line_that_matches_is_passed_over(pattern: str, data: st.DataObject) -> None:
    line = data.draw(st.from_regex(pattern))
    texts = needed(pattern)
    assert texts is None or any(text in line for text in texts)


def found_in(signatures: t.Sequence[Signature], line: str) -> list[str]:
    matcher = Matcher(compile_patterns({"id": each.id, "pattern": each.pattern} for each in signatures))
    return [pattern.id for pattern, _match in matcher.find(line)]


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.id)
def test_every_shipped_signature_is_found_where_its_pattern_is(signature: Signature) -> None:
    from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge

    example = knowledge.load("signatures")[signature.id]["example"]
    assert found_in(SIGNATURES, example) == [signature.id]
    assert re.search(signature.pattern, example)


def test_a_pattern_with_alternatives_is_found_once() -> None:
    signature = Signature("x.y", r"port (?P<port>\d+) down|(?P<all>all ports) down", "error", "c")
    assert found_in([signature], "port 3 down, all ports down") == ["x.y"]
