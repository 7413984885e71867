# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guards over several requests, for faults that no single stream shows. Pure; they run after all requests have ended.

- *right*: the greedy prompt has one right answer, alone and in a full batch. A model that writes garbage does not give it.
- *parted*: one greedy prompt, answered alone and in a full batch. Rounding in a batch makes sound answers diverge late, or into
  a rewording; in a wrongly computed batch they diverge at once and lose the right answer. If this cannot be judged, a sign
  says why.
- *alike*: one text for different questions.
- *known*: questions with one right answer each, asked while the load goes on: garbage that the load alone brings is seen by its wrong
  answers, whatever its letters.
- *wrong*: the load's own questions with known answers, which catch fluent nonsense as *right* does.
- *fingerprint*: equal speeds, and all cut at the limit. Sound streams of a lockstep batch look the same if all are cut,
  so this is garbage only if the texts say next to nothing, and a warning otherwise.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import statistics
import typing as t
import zlib
from collections import defaultdict
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.figures import Burst, Record, figures_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.guards import (
    Answer,
    Requests,
    Sign,
    built,
    compare,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.workloads import Question

_WORD = re.compile(r"\w+")
_REMEDY = (
    "Read the answers; see the launch plan's rules for CUDA graphs, quantisation and speculation at this batch size."
)
_NOT_RIGHT = (
    "Read the answers; see the launch plan's rules for CUDA graphs, quantisation and speculation at this batch size. A sound model "
    "that cannot answer it needs another prompt: the workload `greedy` in your knowledge folder."
)
_NOT_JUDGED = (
    "If requests of the greedy prompt failed, fix that first. Otherwise read the answers, and raise max_tokens of the workload "
    "`greedy` in your knowledge folder (mode quick has its own: run mode full), or ask there for something with one answer."
)
_NOT_KNOWN = (
    "Read the answers; see the launch plan's rules for CUDA graphs, quantisation and speculation at this batch size. A sound model "
    "that does not know them needs other questions: the workload `known` in your knowledge folder."
)
_NOT_TOLD = (
    "If these requests failed, fix that first. Otherwise look at the model's answer to a question that asks for one word: a sound model that "
    "thinks for longer needs more max_tokens of the workload `known` in your knowledge folder (mode quick has its own: run mode full)."
)
_ONLY_BEGUN = "Run mode full, which gives the model enough tokens to answer."


@dataclass(frozen=True, slots=True)
class Parting:
    """Needs two runs alone and `min_answers` together. Garbage if more than the share `most` of the latter diverge early.

    Early: within `early_words` words, and within `share` of the words for which the two runs alone agree. These must be more than
    `early_words`.
    """

    min_answers: int
    early_words: int
    share: float
    most: float


@dataclass(frozen=True, slots=True)
class Right:
    """Garbage if more than the share `most` of the answers to the greedy prompt, alone or together, are wrong.

    An answer that was cut, and thoughts without an answer, have begun soundly if they contain the share `about` of the prompt's words
    of at least `word_chars` characters, as thoughts about it do.
    """

    most: float
    about: float
    word_chars: int


@dataclass(frozen=True, slots=True)
class Alike:
    """Two answers of at least `min_chars` characters. Of at least `short_chars`, more than the share `short_share` of all questions."""

    min_chars: int
    short_chars: int
    short_share: float


@dataclass(frozen=True, slots=True)
class Wrong:
    """The share `share` of at least `min_answers` known answers is wrong."""

    min_answers: int
    share: float


@dataclass(frozen=True, slots=True)
class Told:
    """At least `min_answers` known questions are asked. Garbage if more than the share `most` of the answers is wrong.

    Not judged if that can be told of less than the share `judged` of them. Of an answer that goes on for more than `most_chars`
    characters, whatever it contains, it cannot be told: the questions ask for one word.
    """

    min_answers: int
    most: float
    judged: float
    most_chars: int


@dataclass(frozen=True, slots=True)
class Squeezed:
    """A text of at least `min_chars` characters that compresses by a factor of `ratio` says next to nothing."""

    min_chars: int
    ratio: float


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """The limits of all guards over several requests."""

    burst: Burst
    right: Right
    parting: Parting
    alike: Alike
    wrong: Wrong
    known: Told
    squeezed: Squeezed


def load_limits_of(entries: t.Mapping[str, t.Mapping[str, t.Any]]) -> LoadLimits:
    """Build the limits from the entries of `knowledge/guards`, by id. Raises CollectionError that names guard and key."""
    kinds = {
        "burst": Burst,
        "right": Right,
        "parting": Parting,
        "alike": Alike,
        "wrong": Wrong,
        "known": Told,
        "squeezed": Squeezed,
    }
    return LoadLimits(**built(entries, kinds))


def right(
    alone: t.Sequence[Record],
    together: t.Sequence[Record],
    prompt: t.Mapping[str, t.Any],
    limits: Right,
    begun: bool = False,
) -> list[Sign] | None:
    """Check the greedy prompt's answers; None if there is nothing that can be checked, alone or together.

    prompt: with `expect`, a pattern that every right answer contains, however worded, and perhaps `early`, one that a right answer
    contains even if it was cut. begun: a sound beginning is enough.
    """
    if not prompt.get("expect"):
        return None
    signs, checked = list[Sign](), True
    for records, where in ((alone, "sent alone"), (together, "sent together")):
        answers = [record for record in records if record.status == "ok"]
        found = [_is_right(record, prompt, limits, begun) for record in answers]
        known = [is_right for is_right in found if is_right is not None]
        checked = checked and bool(known)
        if known.count(False) > limits.most * len(known):
            sample = " ".join((answers[found.index(False)].content).split())[:80]
            message = (
                f"{known.count(False)} of {len(known)} answers to the greedy prompt {where} are wrong, such as {sample!r}; "
                "it has one right answer."
            )
            signs.append(Sign("bench.not-right", "error", message, _NOT_RIGHT))
    return signs if signs or checked else None


def _is_right(record: Record, prompt: t.Mapping[str, t.Any], limits: Right, begun: bool) -> bool | None:
    """Whether an answer is right; None if it was cut before that can be told. Garbage, too, may have a sound beginning."""
    text = f"{record.reasoning}\n{record.content}"
    if holds(prompt["expect"], text):
        return True
    if record.content.strip() and record.finish_reason != "length":
        return False
    asked = {word for word in _words(prompt["ask"]) if len(word) >= limits.word_chars}
    is_about = len(asked & set(_words(text))) >= limits.about * max(1, len(asked))
    if is_about or holds(prompt.get("early"), text):
        return True if begun else None
    return False if record.content.strip() and prompt.get("early") else None


def parted(alone: t.Sequence[Record], together: t.Sequence[Record], expect: str | None, limits: Parting) -> list[Sign]:
    """Compare the answers to one greedy prompt; expect: a pattern that every right answer contains, however worded.

    Compares reasoning if there are no answers, as when a model reaches none within max_tokens. Reasoning may diverge in a sound
    batch, so it is garbage only if most begin unlike any other of the batch, and a warning otherwise.
    """
    found = _compared(alone, together, limits)
    if isinstance(found, str):
        return []
    first = _words(found.before[0])
    begun = [(text, _words(text)) for text in found.now]
    gone = [words for text, words in begun if _common(first, words) < found.early and not holds(expect, text)]
    if len(gone) <= limits.most * len(begun):
        return []
    what = "thoughts about" if found.thoughts else "answers to"
    message = (
        f"{len(gone)} of {len(begun)} {what} one greedy prompt diverge from its answer alone within {found.early:g} words; "
        f"two runs alone agree for {found.agreed} words."
    )
    # Compare them with each other, too: in a sound batch, rounding leads several answers to the same different beginning.
    lonely = [
        words
        for place, words in enumerate(gone)
        if all(_common(words, other) < found.early for at, other in enumerate(gone) if at != place)
    ]
    is_error = not found.thoughts or len(lonely) > limits.most * len(begun)
    return [Sign("bench.parted", "error" if is_error else "warning", message, _REMEDY)]


def not_judged(n: int, alone: t.Sequence[Record], together: t.Sequence[Record], limits: Parting) -> list[Sign]:
    """Return a warning if `n` concurrent requests cannot be compared with runs alone, and why; none for n = 1.

    It is the verdict if the answers cannot be checked either, see `right`.
    """
    why = _compared(alone, together, limits)
    if n < 2 or not isinstance(why, str):
        return []
    message = f"Whether {n} at once change the answers is not judged: {why}."
    return [Sign("bench.not-judged", "warning", message, _NOT_JUDGED)]


@dataclass(frozen=True, slots=True)
class _Compared:
    """What is compared: the texts alone and together, the words for which the runs alone agree, and where divergence stops being early."""

    before: list[str]
    now: list[str]
    agreed: int
    early: float
    thoughts: bool


def _compared(alone: t.Sequence[Record], together: t.Sequence[Record], limits: Parting) -> _Compared | str:
    """Return what can be compared, or why nothing can."""
    for name in ("content", "reasoning"):
        before, now = _texts(alone, name), _texts(together, name)
        if len(before) < 2 or len(now) < limits.min_answers:
            continue
        agreed = min(_common(one, other) for one, other in itertools.combinations(map(_words, before), 2))
        if agreed <= limits.early_words:
            return (
                f"two runs alone agree for {agreed} words only, and more than {limits.early_words} are needed to tell the "
                "effect of a batch from chance"
            )
        return _Compared(before, now, agreed, min(float(limits.early_words), limits.share * agreed), name != "content")
    told = (
        f"{len(_texts(records, 'content'))} answers and {len(_texts(records, 'reasoning'))} thoughts"
        for records in (alone, together)
    )
    return (
        "the greedy prompt gave {} alone and {} together; at least 2 alone and {} together of one kind are needed"
    ).format(*told, limits.min_answers)


def alike(records: t.Sequence[Record], limits: Alike) -> list[Sign]:
    """Look for one answer to different questions: two are enough of a long one, most are needed of a short one."""
    asked: dict[str, set[int]] = defaultdict(set)
    questions = {record.question for record in records}
    for record in records:
        # With its marks: two drawings may have the same words.
        text = " ".join((record.content or record.reasoning).casefold().split())
        if record.status == "ok" and len(text) >= limits.short_chars:
            asked[text].add(record.question)
    shared = [
        (text, who)
        for text, who in asked.items()
        if len(text) >= limits.min_chars or len(who) > limits.short_share * len(questions)
    ]
    most = max(shared, key=lambda item: len(item[1]), default=("", set[int]()))
    if len(most[1]) < 2:
        return []
    message = f"{len(most[1])} different questions got one answer: {most[0][:80]!r}."
    return [Sign("bench.alike", "error", message, _REMEDY)]


def wrong(known: t.Sequence[tuple[Record, str | None]], limits: Wrong) -> list[Sign]:
    """Check the known answers. Skips answers that were cut, and questions without a known answer."""
    texts = [
        (record.content, expect)
        for record, expect in known
        if expect and record.status == "ok" and record.finish_reason != "length" and record.content.strip()
    ]
    missed = [text for text, expect in texts if not holds(expect, text)]
    if len(texts) < limits.min_answers or len(missed) < limits.share * len(texts):
        return []
    message = f"{len(missed)} of {len(texts)} answers with a known result are wrong, such as {' '.join(missed[0].split())[:80]!r}."
    return [Sign("bench.wrong", "error", message, _REMEDY)]


def known(told: t.Sequence[Question], records: t.Sequence[Record], limits: Told, begun: bool = False) -> list[Sign]:
    """Check the answers to the known questions that were asked among the load's. begun: a sound beginning is enough."""
    found = _told(told, records, limits, begun)
    missed = [text for is_right, text in found if is_right is False]
    count = sum(is_right is not None for is_right, _text in found)
    if not missed:
        return []
    message = (
        f"{len(missed)} of {count} answers to known questions, asked among the load's, are wrong, such as "
        f"{' '.join(missed[0].split())[:80]!r}."
    )
    return [Sign("bench.known", "error" if len(missed) > limits.most * count else "warning", message, _NOT_KNOWN)]


def untold(told: t.Sequence[Question], records: t.Sequence[Record], limits: Told, begun: bool = False) -> list[Sign]:
    """Return a warning if it cannot be told whether the known questions were answered right: then nor can the load's be."""
    count = sum(is_right is not None for is_right, _text in _told(told, records, limits, begun))
    if count >= max(1.0, limits.judged * len(told)):
        return []
    message = f"The load's answers are not judged: {count} of {len(told)} known questions were answered."
    return [Sign("bench.not-judged", "warning", message, _NOT_TOLD)]


def only_begun(told: t.Sequence[Question], records: t.Sequence[Record], limits: Told) -> list[Sign]:
    """Return a warning if sound beginnings were all that could be checked of most known questions' answers."""
    if not untold(told, records, limits) or untold(told, records, limits, begun=True):
        return []
    message = "Only the beginnings of answers to known questions were checked: they were cut off, or did not end. Garbage may follow."
    return [Sign("bench.only-begun", "warning", message, _ONLY_BEGUN)]


def _told(
    told: t.Sequence[Question], records: t.Sequence[Record], limits: Told, begun: bool
) -> list[tuple[bool | None, str]]:
    """Return whether each answer is right, None if it was cut before that can be told, and its text."""
    asked = {question.index: question for question in told}
    return [
        (_knows(record, asked[record.index], limits, begun), record.content or record.reasoning)
        for record in records
        if record.status == "ok" and record.index in asked
    ]


def _knows(record: Record, question: Question, limits: Told, begun: bool) -> bool | None:
    # Without thoughts that the server left in it.
    answer = record.content.rpartition("</think>")[2].strip()
    if record.content.strip() and record.finish_reason != "length":
        is_right = holds(question.expect, answer)
        return None if is_right and len(answer) > limits.most_chars and not begun else is_right
    text = f"{record.reasoning}\n{record.content}"
    if holds(question.expect, text) or holds(question.early, text):
        return True if begun else None
    return False if record.content.strip() else None


def fingerprint(records: t.Sequence[Record], requests: Requests, squeezed: Squeezed, burst: Burst) -> list[Sign]:
    """Look for what the requests of a collapsed model have in common, as the canary does."""
    good = [record for record in records if record.status == "ok"]
    answers = [
        Answer(
            str(record.index),
            figures_of(record, burst).tokens_per_s,
            bool((record.content + record.reasoning).strip()),
            record.finish_reason,
        )
        for record in good
    ]
    signs = compare(answers, requests)
    ratios = [ratio for record in good if (ratio := _ratio(record, squeezed)) is not None]
    is_empty = any(sign.id == "tokens.no-content" for sign in signs)
    # Texts too short to judge by compression have passed their own guards.
    if is_empty or (ratios and statistics.median(ratios) >= squeezed.ratio):
        return signs
    return [dataclasses.replace(sign, severity="warning") for sign in signs]


def _ratio(record: Record, squeezed: Squeezed) -> float | None:
    text = (record.reasoning + record.content).encode()
    return len(text) / len(zlib.compress(text)) if len(text) >= squeezed.min_chars else None


def _texts(records: t.Sequence[Record], name: str) -> list[str]:
    texts = [t.cast(str, getattr(record, name)) for record in records if record.status == "ok"]
    return [text for text in texts if text.strip()]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _common(one: t.Sequence[str], other: t.Sequence[str]) -> int:
    """Return the number of leading words that two answers share."""
    return sum(1 for _pair in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def holds(expect: str | None, text: str) -> bool:
    """Whether a text contains what is expected; never if nothing is."""
    return expect is not None and re.search(expect, text, re.IGNORECASE) is not None
