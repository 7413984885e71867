"""The shipped signatures: each finds the line it was made from, no other does, and its words can be filled in."""

from __future__ import annotations

import re

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge

SIGNATURES = knowledge.load("signatures")


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_signature_finds_its_own_line_and_no_other_does(name: str) -> None:
    example = SIGNATURES[name]["example"]
    assert [other for other, entry in SIGNATURES.items() if re.search(entry["pattern"], example)] == [name]


@pytest.mark.parametrize("name", SIGNATURES)
def test_cause_and_remedy_name_only_what_the_pattern_captures(name: str) -> None:
    entry = SIGNATURES[name]
    found = re.search(entry["pattern"], entry["example"])
    assert found
    for text in (entry["cause"], entry["remedy"]):
        assert "{" not in text.format_map(found.groupdict())


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_signature_stands_in_its_component(name: str) -> None:
    assert name.split(".")[0] == SIGNATURES[name]["component"]
