"""What --diff shows of a module's changes."""

from __future__ import annotations

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Change, change_result

LONG = "".join(f"line {number}\n" for number in range(500))


@pytest.mark.parametrize(("before", "after"), [(None, LONG), (LONG, None)])
def test_a_whole_program_that_comes_or_goes_is_one_line(before: str | None, after: str | None) -> None:
    made = change_result([Change("/usr/local/lib/x", "file", before, after)])
    assert {len(made["diff"][side].splitlines()) for side in ("before", "after")} == {1}
    assert "500 lines, sha256 " in made["diff"]["before"] + made["diff"]["after"]
    assert made["changes"][0]["after"] == after


def test_what_changes_in_a_long_file_and_a_short_one_are_shown_whole() -> None:
    made = change_result(
        [Change("/x", "file", LONG, LONG.replace("line 7\n", "line 8\n")), Change("/y", "file", None, "a\nb\n")]
    )
    assert "line 499" in made["diff"]["before"] and "line 499" in made["diff"]["after"]
    assert "/y file: a\nb\n" in made["diff"]["after"]


def test_what_is_not_there_is_none_in_words() -> None:
    made = change_result([Change("p0f0v0", "mac", None, "02:d6:00:01:00:00")])
    assert made["diff"] == {"before": "p0f0v0 mac: none\n", "after": "p0f0v0 mac: 02:d6:00:01:00:00\n"}
