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
    """One request's prompt. number: which of the workload's prompts it is."""

    index: int
    number: int
    text: str
    seed: int
    expect: str | None = None


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
    shared = _filling(workload, None) if workload.fill and workload.fill["shared"] else ""
    found = []
    for index in range(start, start + count):
        number = index % len(workload.prompts)
        prompt = workload.prompts[number]
        before = shared or (_filling(workload, index) if workload.fill else "")
        found.append(Question(index, number, before + prompt["ask"], workload.seed + index, prompt.get("expect")))
    return found


def _filling(workload: Workload, index: int | None) -> str:
    fill = t.cast(Plain, workload.fill)
    chance = random.Random(f"{workload.seed} {index}")
    form = string.Template(fill["form"])
    sentences = []
    try:
        for number in range(1, fill["sentences"] + 1):
            words = {name: chance.choice(values) for name, values in fill["words"].items()}
            sentences.append(form.substitute(words, number=number))
    except KeyError as exc:
        where = f"workload {workload.name}: fill.form"
        raise CollectionError(f"{where}: ${exc.args[0]} has no words. Name them in fill.words.") from None
    except ValueError:
        where = f"workload {workload.name}: fill.form"
        raise CollectionError(f"{where}: a $ without a name. Write $$ for the sign itself.") from None
    return " ".join(sentences) + "\n\n"
