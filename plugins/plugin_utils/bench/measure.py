# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One measurement: each concurrency level is warmed up, asked one greedy prompt, loaded, asked what is known, and judged.

Speed counts only for answers that pass the guards at the measured concurrency: a level with garbage is garbage,
whatever its speed.
"""

from __future__ import annotations

import dataclasses
import math
import typing as t
from collections import Counter
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import across
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.client import ChatRequest
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.figures import (
    Figures,
    Level,
    Record,
    figures_of,
    level_of,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.guards import Limits, Sign
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.load import Planned, Say, Turn, died, turns
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.workloads import Question, Workload, questions

_WARM_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Bench:
    """What to measure. levels: requests at once; each level asks `rounds` times as many, and stops asking after `seconds`.

    greedy: the workload whose first prompt is asked twice alone and then at each level, to compare its answers.
    known: the workload whose prompts have one right answer each. They are asked after each level's load, among as many of its
    requests, in a turn of their own: so no figure has them, whereas what the load does to answers is seen.
    within_s: after the first, no level begins that would probably not end within this many seconds.
    begun: of answers with one right value, a sound beginning is enough, as nothing has the time to end.
    """

    request: ChatRequest
    workload: Workload
    greedy: Workload
    known: Workload
    levels: tuple[int, ...]
    rounds: int
    seconds: float
    within_s: float = math.inf
    begun: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """A level's result. Its speed counts only if the verdict is good.

    failed: some requests were not answered, or it cannot be judged whether the answers are right.
    window: when the measured requests began and ended, in seconds since 1970 by the clock of the machine that asks.
    """

    verdict: t.Literal["good", "failed", "garbage"]
    message: str
    level: Level
    signs: tuple[Sign, ...]
    requests: tuple[Figures, ...]
    records: tuple[Record, ...]
    not_asked: int
    client_share: float
    scrapes: tuple[str, ...] = ()
    window: tuple[float, float] = (0.0, 0.0)


def measure(bench: Bench, limits: Limits, over: across.LoadLimits, say: Say = lambda _text: None) -> list[Result]:
    """Measure all levels, stopping at one whose server is gone. Raises CollectionError for invalid bounds, or if no request can be sent."""
    if not bench.levels or min(bench.levels) < 1 or bench.rounds < 1 or bench.seconds <= 0:
        raise CollectionError("levels, rounds and seconds must be more than 0, and one level or more must be given.")
    _warm, alone, *done = turns(bench.request, _planned(bench, over), limits, say, bench.within_s)
    results, start, first = [], 0, 0
    # Each level has a warm-up, the greedy prompt, the load and the known questions.
    for greedy, load, known in zip(done[1::4], done[2::4], done[3::4], strict=True):
        asked = questions(bench.workload, load.n * bench.rounds, start)
        told = _told(bench, load.n, first, over)
        start, first = start + len(asked), first + len(told)
        results.append(judged(bench, alone, greedy, load, known, asked, told, limits, over))
    left = bench.levels[len(results) :]
    if left and died(done):
        message = f"{results[-1].message} So {', '.join(map(str, left))} at once were not tried."
        results[-1] = dataclasses.replace(results[-1], message=message)
    return results


def _told(bench: Bench, n: int, first: int, over: across.LoadLimits) -> list[Question]:
    """Return a level's known questions, as many as it has requests at once; asked as warm as the load's."""
    known = dataclasses.replace(bench.known, temperature=bench.workload.temperature)
    return questions(known, max(n, over.known.min_answers), first)


def _planned(bench: Bench, over: across.LoadLimits) -> list[Planned]:
    """Return the turns: warm-up, the greedy prompt alone, then for each level warm-up, the greedy prompt, the load, what is known.

    A batch is asked the greedy prompt so often that it can be judged. One request at a time is no batch.
    """
    warm = dataclasses.replace(bench.greedy, max_tokens=min(_WARM_TOKENS, bench.greedy.max_tokens))
    greedy = dataclasses.replace(bench.greedy, temperature=0.0)

    def same(n: int) -> list[Question]:
        (question,) = questions(greedy, 1)
        return [dataclasses.replace(question, index=index) for index in range(n)]

    def hello(n: int) -> list[Question]:
        return [dataclasses.replace(question, text="Say hello.") for question in same(n)]

    known = dataclasses.replace(bench.known, temperature=bench.workload.temperature)
    planned = [Planned(1, warm, hello(1), bench.seconds), Planned(1, greedy, same(2), bench.seconds)]
    start = first = 0
    for n in bench.levels:
        asked = questions(bench.workload, n * bench.rounds, start)
        start += len(asked)
        planned.append(Planned(n, warm, hello(n), bench.seconds, begins=True))
        planned.append(Planned(n, greedy, same(max(n, over.parting.min_answers) if n > 1 else 1), bench.seconds))
        planned.append(Planned(n, bench.workload, asked, bench.seconds, scrape=True))
        told = _told(bench, n, first, over)
        first += len(told)
        planned.append(Planned(n, known, told, math.inf, beside=(bench.workload, asked)))
    return planned


def judged(
    bench: Bench,
    alone: Turn,
    greedy: Turn,
    load: Turn,
    known: Turn,
    asked: t.Sequence[Question],
    told: t.Sequence[Question],
    limits: Limits,
    over: across.LoadLimits,
) -> Result:
    """Judge a level by its load, by the greedy prompt's answers alone and at the same concurrency, and by what is known. Pure.

    asked, told: the questions of the load, and those with one right answer. The figures are the load's, but failures or garbage in
    the other turns count, too: without their answers it is unknown whether the load's are sound.
    """
    level = level_of(load.n, load.records, over.burst)
    prompt = bench.greedy.prompts[0]
    parted = across.parted(alone.records, greedy.records, prompt.get("expect"), over.parting)
    right = across.right(alone.records, greedy.records, prompt, over.right, bench.begun)
    # Answers that are right were judged, even if rounding makes two runs alone differ.
    unjudged = [] if right is not None else across.not_judged(load.n, alone.records, greedy.records, over.parting)
    unjudged += across.untold(told, known.records, over.known, bench.begun)
    expected = {question.index: question.expect for question in asked}
    whole = [dataclasses.replace(r, finish_reason=None) if bench.workload.cut else r for r in load.records]
    signs = [
        *across.fingerprint(whole, limits.requests, over.squeezed, over.burst),
        *parted,
        *(() if any(sign.severity == "error" for sign in parted) else right or ()),  # one error says it
        *across.not_judged(load.n, alone.records, greedy.records, over.parting),
        *across.alike(_unknown(load.records, expected, greedy.records), over.alike),
        *across.wrong([(record, expected.get(record.index)) for record in load.records], over.wrong),
        *across.known(told, known.records, over.known, bench.begun),
        *(across.only_begun(told, known.records, over.known) if bench.begun else ()),
        *_bursts(level),
    ]
    beside = (*greedy.records, *alone.records, *known.records)
    level = dataclasses.replace(level, causes=_causes((*load.records, *beside)))
    asked_of = (
        (load.records, "requests"),
        (greedy.records, "requests of the greedy prompt"),
        (alone.records, "requests of the greedy prompt alone"),
        (known.records, "known questions among the load's"),
    )
    bad, failures = _garbage(asked_of), _failures(asked_of)
    errors = [sign for sign in signs if sign.severity == "error"]
    message = ""
    if bad or errors:
        message = f"{load.n} at once: {' '.join(filter(None, [bad, *(sign.message for sign in errors)]))}"
    elif failures or unjudged:
        message = f"{load.n} at once: {failures or ' '.join(f'{sign.message} {sign.remedy}' for sign in unjudged)}"
    return Result(
        verdict="garbage" if bad or errors else "failed" if failures or unjudged else "good",
        message=message,
        level=level,
        signs=tuple(signs),
        requests=tuple(figures_of(record, over.burst) for record in load.records),
        records=load.records,
        not_asked=load.not_asked,
        client_share=load.client_share,
        scrapes=load.scrapes,
        window=(load.began_at, load.began_at + load.wall_s),
    )


def _unknown(
    records: t.Sequence[Record], known: t.Mapping[int, str | None], greedy: t.Sequence[Record]
) -> list[Record]:
    """Return the answers that may not be alike: those without a known answer in them, and those to the greedy prompt."""
    other = [dataclasses.replace(record, question=-1) for record in greedy]
    return [record for record in records if not across.holds(known.get(record.index), record.content)] + other


def _garbage(asked_of: t.Iterable[tuple[t.Sequence[Record], str]]) -> str:
    """Return of which requests the answers are garbage, and what the first of them is."""
    found = [
        (records, bad, what) for records, what in asked_of if (bad := [r for r in records if r.status == "garbage"])
    ]
    told = ", ".join(f"the answers to {len(bad)} of {len(records)} {what} are garbage" for records, bad, what in found)
    return f"{told}: {found[0][1][0].message}" if found else ""


def _failures(asked_of: t.Iterable[tuple[t.Sequence[Record], str]]) -> str:
    """Return which requests failed; what happened is told once for each cause."""
    found: list[str] = []
    told: set[str] = set()
    for records, what in asked_of:
        failed = [record for record in records if record.status == "failed"]
        causes = _causes(failed)
        if failed:
            why = "" if told.issuperset(causes) else f" {failed[0].message}"
            found.append(f"{len(failed)} of {len(records)} {what} failed ({', '.join(sorted(causes))}).{why}")
        told.update(causes)
    return " ".join(found)


def _causes(records: t.Sequence[Record]) -> dict[str, int]:
    return dict(Counter(record.cause for record in records if record.cause))


def _bursts(level: Level) -> list[Sign]:
    if not level.bursts:
        return []
    message = f"{level.bursts} of {level.ok} answers came in one burst, and have no speed of their own."
    remedy = "Something holds the stream back: a proxy that buffers, or an engine whose processes share too few cores."
    return [Sign("bench.burst", "warning", message, remedy)]
