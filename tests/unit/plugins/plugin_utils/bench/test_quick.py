"""What a quick measurement says in sentences."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.figures import Level
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.measure import Result
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.quick import Marks, answer

MARKS = Marks(pace=10, flat=0.15, busy=0.5)


def result(n: int, each: float, wall: float, **more: t.Any) -> Result:
    level = Level(n, n, 0, 0, 0, 100, 1.0, each * n, wall, each, each * 0.9, 0.2, 0.3, 0.02, 0.04, True)
    made = Result("good", "", level, (), (), (), 0, 0.01)
    return dataclasses.replace(made, **more)


def test_one_user_many_users_and_nothing_at_its_limit() -> None:
    said = answer([result(1, 40, 38), result(8, 20, 150)], {}, MARKS)
    assert said == [
        "One user gets 40 tokens/s; the first comes after 0.2 s.",
        "Up to 8 users get at least 18 tokens/s each, 150 in all with their waits.",
        "Nothing was at its limit with 8 users: more were not tried.",
    ]


def test_the_engine_its_queue_or_the_client_is_the_limit() -> None:
    levels = [result(1, 40, 38), result(8, 20, 150), result(16, 8, 151)]
    said = answer(levels, {}, MARKS)
    assert "With 16 the slowest gets 7.2, less than a reader's 10." in said
    assert said[-1] == "What limits it: the engine itself. From 8 users on they share about 151 tokens/s."
    assert "it computed 8 at a time, and 8 waited" in answer(levels, {16: (8, 8)}, MARKS)[-1]
    assert "this client" in answer([result(8, 20, 150, client_share=0.7)], {}, MARKS)[-1]


def test_garbage_has_no_speed() -> None:
    bad = result(8, 90, 700, verdict="garbage", message="8 at once: all one token.")
    said = answer([result(1, 40, 38), bad], {}, MARKS)
    assert len(said) == 2
    assert "With 8 at once its speed does not count, the answers are garbage: 8 at once: all one token." in said
    assert answer([bad], {}, MARKS) == [said[1]]


def test_one_level_alone_tells_no_limit() -> None:
    assert answer([result(8, 20, 150)], {}, MARKS) == [
        "8 users at once get 20 tokens/s each; the first comes after 0.2 s.",
        "8 users get at least 18 tokens/s each, 150 in all with their waits.",
        "What limits it is not known: only the level with 8 users was measured. Measure more levels.",
    ]


def test_a_sum_that_falls_is_said_to_fall() -> None:
    said = answer([result(1, 40, 38), result(8, 20, 150), result(16, 11, 80)], {}, MARKS)
    assert (
        said[-1]
        == "What limits it: the engine itself. It peaks with 8 users, 150 tokens/s in all; with 16 users it falls to 80."
    )


def test_a_sum_that_rests_and_grows_again_is_not_at_its_limit_where_it_rested() -> None:
    levels = [result(1, 40, 38), result(4, 10.5, 40), result(8, 20, 150)]
    assert answer(levels, {}, MARKS)[-1] == "Nothing was at its limit with 8 users: more were not tried."


def test_users_have_enough_up_to_the_first_level_that_has_not() -> None:
    dips = [result(1, 40, 38), result(4, 8, 30), result(8, 20, 150)]
    said = answer(dips, {}, MARKS)
    assert not any(words.startswith("Up to") for words in said)
    assert "With 4 the slowest gets 7.2, less than a reader's 10." in said
    failed = result(4, 20, 70, verdict="failed", message="4 at once: 1 of 4 requests failed.")
    assert not any(words.startswith("Up to") for words in answer([dips[0], failed, dips[2]], {}, MARKS))
    slower = [result(1, 40, 38), result(4, 15, 50), result(8, 20, 150)]
    assert "Up to 8 users get at least 13.5 tokens/s each, 150 in all with their waits." in answer(slower, {}, MARKS)


def test_one_user_who_gets_too_little_is_told_so_once() -> None:
    said = answer([result(1, 5, 5), result(4, 5, 19)], {}, MARKS)
    assert said[1] == "That is less than a reader's 10 tokens/s."


def test_thousands_of_tokens_are_no_power_of_ten() -> None:
    said = " ".join(answer([result(1, 40, 38), result(64, 22, 1364), result(128, 11, 1100)], {}, MARKS))
    assert "It peaks with 64 users, 1360 tokens/s in all; with 128 users it falls to 1100." in said
    assert "1360 in all with their waits" in said
