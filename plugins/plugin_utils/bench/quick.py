# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a measurement comes to for users, in sentences. Pure."""

from __future__ import annotations

import itertools
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.measure import Result

# (requests computed, requests waiting) at one time, at most
Queue = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Marks:
    """pace: tokens/s that a reader needs. flat: growth of the sum below which more users share what there is.

    busy: share of the client's thread from which on the figures are the client's.
    """

    pace: float
    flat: float
    busy: float


def answer(results: t.Sequence[Result], queues: t.Mapping[int, Queue], marks: Marks) -> list[str]:
    """Say what one user gets, how many get enough, and what limits it. queues: of levels whose engine tells."""
    good = [r for r in results if r.verdict == "good" and r.level.per_request_tokens_per_s]
    said = [_bad(result) for result in results if result.verdict != "good"]
    if not good:
        return said or ["No answer had a speed: see the signs of each level."]
    first = good[0].level
    users = "One user gets" if first.n == 1 else f"{first.n} users at once get"
    said.insert(
        0, f"{users} {first.per_request_tokens_per_s:.3g} tokens/s; the first comes after {first.ttft_median_s:.2g} s."
    )
    enough = [r.level for r in good if (r.level.slowest_tokens_per_s or 0) >= marks.pace]
    if enough and enough[-1].n > 1:
        most = enough[-1]
        said.insert(
            1, f"Up to {most.n} users get at least {most.slowest_tokens_per_s:.3g} tokens/s each, "
            f"{most.wall_tokens_per_s:.3g} in all with their waits."
        )  # fmt: skip
    slow = next((r.level for r in good if (r.level.slowest_tokens_per_s or 0) < marks.pace), None)
    if slow:
        said.append(
            f"With {slow.n} the slowest gets {slow.slowest_tokens_per_s:.2g}, less than a reader's {marks.pace:g}."
        )
    # Of levels that are not good, what is wrong with them is the limit.
    return said if len(good) < len(results) else [*said, _limit(good, queues, marks)]


def _users(n: int) -> str:
    return "1 user" if n == 1 else f"{n} users"


def _bad(result: Result) -> str:
    what = "its speed does not count, the answers are garbage" if result.verdict == "garbage" else "requests failed"
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
    for less, more in itertools.pairwise(good):
        before, now = less.level.wall_tokens_per_s or 0, more.level.wall_tokens_per_s or 0
        if now < before * (1 + marks.flat):
            return f"What limits it: the engine itself. From {_users(less.level.n)} on they share about {max(before, now):.3g} tokens/s."
    return f"Nothing was at its limit with {_users(last.level.n)}: more were not tried."
