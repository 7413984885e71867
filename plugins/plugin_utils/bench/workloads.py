# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a benchmark asks, from the entries of `knowledge/workloads`. Pure: one seed gives one set of questions."""

from __future__ import annotations

import random
import re
import string
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

Plain = t.Mapping[str, t.Any]


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of work. cut: its answers are meant to end at max_tokens."""

    name: str
    max_tokens: int
    temperature: float
    seed: int
    timeout_s: float
    prompts: tuple[Plain, ...]
    cut: bool = False
    fill: Plain | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One request's prompt. number: which of the workload's prompts it is.

    expect, early: patterns that a right answer contains, the second even if it is cut.
    """

    index: int
    number: int
    text: str
    seed: int
    expect: str | None = None
    early: str | None = None


def workload_of(name: str, entries: t.Mapping[str, Plain]) -> Workload:
    """Return the workload of that id. Raises CollectionError for an unknown one, and for faults that its schema cannot check."""
    if name not in entries:
        raise CollectionError(f"There is no workload {name!r}. Known: {', '.join(sorted(entries))}.")
    entry = entries[name]
    for position, prompt in enumerate(entry["prompts"]):
        for key in ("expect", "early"):
            try:
                re.compile(prompt.get(key, ""))
            except re.error as exc:
                where = f"workload {name}: prompts.{position}.{key}"
                raise CollectionError(f"{where}: {prompt[key]!r} is not a regular expression: {exc}.") from exc
    known = ("max_tokens", "temperature", "seed", "timeout_s", "cut", "fill")
    return Workload(
        name=name, prompts=tuple(entry["prompts"]), **{key: entry[key] for key in known if entry.get(key) is not None}
    )


def questions(workload: Workload, count: int, start: int = 0) -> list[Question]:
    """Return the questions `start` to `start + count - 1` of a workload."""
    none = list[dict[str, str]]()
    shared = _filling(workload, None) if workload.fill and workload.fill["shared"] else None
    found = []
    for index in range(start, start + count):
        number = index % len(workload.prompts)
        prompt = workload.prompts[number]
        before, told = shared or (_filling(workload, index) if workload.fill else ("", none))
        found.append(
            Question(
                index,
                number,
                before + prompt["ask"],
                workload.seed + index,
                _expected(workload, prompt, told),
                prompt.get("early"),
            )
        )
    return found


def _expected(workload: Workload, prompt: Plain, told: t.Sequence[t.Mapping[str, str]]) -> str | None:
    """Return what a right answer contains. told: the words of each sentence of the filling."""
    expect, sentence = prompt.get("expect"), prompt.get("sentence")
    if expect is None or sentence is None:
        return expect
    where = f"workload {workload.name}: prompts: sentence {sentence}"
    if sentence > len(told):
        raise CollectionError(f"{where}: the filling has {len(told)} sentences.")
    try:
        return string.Template(expect).substitute({name: re.escape(word) for name, word in told[sentence - 1].items()})
    except (KeyError, ValueError) as exc:
        raise CollectionError(f"{where}: expect: {expect!r} names no words of fill.words: {exc}.") from None


def _filling(workload: Workload, index: int | None) -> tuple[str, list[dict[str, str]]]:
    """Return the filling, and the words of each of its sentences."""
    fill = t.cast(Plain, workload.fill)
    chance = random.Random(f"{workload.seed} {index}")
    form = string.Template(fill["form"])
    sentences, told = [], []
    try:
        for number in range(1, fill["sentences"] + 1):
            words = {name: chance.choice(values) for name, values in fill["words"].items()}
            sentences.append(form.substitute(words, number=number))
            told.append(words)
    except KeyError as exc:
        where = f"workload {workload.name}: fill.form"
        raise CollectionError(f"{where}: ${exc.args[0]} has no words. Name them in fill.words.") from None
    except ValueError:
        where = f"workload {workload.name}: fill.form"
        raise CollectionError(f"{where}: a $ without a name. Write $$ for the sign itself.") from None
    return " ".join(sentences) + "\n\n", told
