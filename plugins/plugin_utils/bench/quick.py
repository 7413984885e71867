# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Summarises a measurement for users in sentences. Pure."""

from __future__ import annotations

import itertools
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.measure import Result
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.significant import significant

# most requests (computed, waiting) at one time
Queue = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Marks:
    """pace: tokens/s that a reader needs. flat: growth of the sum below which more users only share the throughput.

    busy: load of the client's thread from which on the figures are the client's and not the server's.
    """

    pace: float
    flat: float
    busy: float


def answer(results: t.Sequence[Result], queues: t.Mapping[int, Queue], marks: Marks) -> list[str]:
    """Say what one user gets, how many get enough, and what limits it. queues: for the levels whose engine reports them."""
    good = [r for r in results if r.verdict == "good" and r.level.per_request_tokens_per_s]
    said = [_bad(result) for result in results if result.verdict != "good"]
    if not good:
        return said or ["No answer had a speed: see the signs of each level."]
    first = good[0].level
    users, each = ("One user gets", "") if first.n == 1 else (f"{first.n} users at once get", " each")
    said.insert(
        0,
        f"{users} {_read(first.per_request_tokens_per_s)} tokens/s{each}; the first comes after {_read(first.ttft_median_s)} s.",
    )
    # Up to the first level that is not good or too slow: a level with more users says nothing about one with fewer.
    enough = [r.level for r in itertools.takewhile(lambda r: _slowest(r, good) >= marks.pace, results)]
    if enough and enough[-1].n > 1:
        most, least = enough[-1], min(level.slowest_tokens_per_s or 0 for level in enough)
        users = f"Up to {most.n} users get" if len(enough) > 1 else f"{most.n} users get"
        said.insert(
            1,
            f"{users} at least {significant(least)} tokens/s each, {_read(most.wall_tokens_per_s)} in all with their waits.",
        )
    slow = next((r.level for r in good if _slowest(r, good) < marks.pace), None)
    if slow is first and first.n == 1:
        said.insert(1, f"That is less than a reader's {marks.pace:g} tokens/s.")
    elif slow:
        said.append(
            f"With {slow.n} the slowest gets {_read(slow.slowest_tokens_per_s)}, less than a reader's {marks.pace:g}."
        )
    # If some levels are not good, what is wrong with them is the limit.
    return said if len(good) < len(results) else [*said, _limit(good, queues, marks)]


def _slowest(result: Result, good: t.Sequence[Result]) -> float:
    """Return the slowest request's tokens/s; 0 if the level's speed does not count."""
    return result.level.slowest_tokens_per_s or 0.0 if result in good else 0.0


def _read(value: float | None) -> str:
    """Return a figure as people read it: two or three digits, and no power of ten; nothing below a hundredth counts here."""
    if value is None:
        return "?"
    return "less than 0.01" if value < 0.01 else significant(value, 2) if value < 1 else significant(value)


def _users(n: int) -> str:
    return "1 user" if n == 1 else f"{n} users"


def _bad(result: Result) -> str:
    failed = "requests failed" if result.level.causes else "its speed does not count, the answers are not judged"
    what = "its speed does not count, the answers are garbage" if result.verdict == "garbage" else failed
    return f"With {result.level.n} at once {what}: {result.message}"


def _limit(good: t.Sequence[Result], queues: t.Mapping[int, Queue], marks: Marks) -> str:
    last = good[-1]
    if last.client_share >= marks.busy:
        return (
            f"What limits it: this client, whose processor was busy for {last.client_share:.0%} of the time. "
            "Run it on a faster machine."
        )
    for result in good:
        running, waiting = queues.get(result.level.n, (0.0, 0.0))
        if waiting:
            return (
                f"What limits it: the engine's number of requests at once. With {result.level.n} it computed {running:.0f} at a "
                f"time, and {waiting:.0f} waited: see max_running_requests (max_num_seqs) and the room for the cache."
            )
    sums = [(result.level.n, result.level.wall_tokens_per_s or 0.0) for result in good]
    (users, best), (most, at_last) = max(sums, key=lambda pair: pair[1]), sums[-1]
    if at_last * (1 + marks.flat) < best:
        return (
            f"What limits it: the engine itself. It peaks with {_users(users)}, {significant(best)} tokens/s in all; "
            f"with {_users(most)} it falls to {significant(at_last)}."
        )
    shared = next(n for n, tokens in sums if best < tokens * (1 + marks.flat))
    if shared != most:
        return f"What limits it: the engine itself. From {_users(shared)} on they share about {significant(best)} tokens/s."
    if len(good) == 1:
        return f"What limits it is not known: only the level with {_users(most)} was measured. Measure more levels."
    return f"Nothing was at its limit with {_users(most)}: more were not tried."
