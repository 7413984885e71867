# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an engine reports about itself: its name, its acceptance of drafts, and whether requests waited. Pure.

The names are data (`knowledge/metrics`); the text is Prometheus's exposition format. Values of one name are summed over
their labels, so that an engine of several parts counts as one; a gauge in [0, 1] or a length is averaged.
"""

from __future__ import annotations

import re
import statistics
import typing as t
from collections import defaultdict
from dataclasses import dataclass

Plain = t.Mapping[str, t.Any]
Values = t.Mapping[str, t.Sequence[float]]

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{.*\})?\s+(\S+)(?:\s+\S+)?\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Speculation's acceptance. length: tokens per step of the target model. rate: accepted over drafted tokens. None: unknown."""

    length: float | None
    rate: float | None
    source: str


def values_of(text: str) -> dict[str, list[float]]:
    """Return the values of each name in a scrape."""
    found: dict[str, list[float]] = defaultdict(list)
    for name, value in _SAMPLE.findall(text):
        try:
            found[name].append(float(value))
        except ValueError:
            continue
    return dict(found)


def engine_of(text: str, entries: t.Mapping[str, Plain]) -> Plain | None:
    """Return the entry of the engine that exports these metrics."""
    names = values_of(text)
    return next((e for e in entries.values() if any(name.startswith(e["prefix"]) for name in names)), None)


def acceptance(loads: t.Sequence[t.Sequence[str]], entry: Plain) -> Acceptance | None:
    """Return the acceptance over loads, each the scrapes from its beginning to its end. None: nothing drafted or reported."""
    read = [[values_of(text) for text in scrapes] for scrapes in loads if len(scrapes) > 1]
    for way in entry["acceptance"]:
        names = {key: name for key, name in way.items() if key != "since"}
        if read and all(name in scrapes[-1] for scrapes in read for name in names.values()):
            found = _by(names, read, entry["title"])
            if found:
                return found
    return None


def _by(names: t.Mapping[str, str], read: t.Sequence[t.Sequence[Values]], title: str) -> Acceptance | None:
    grown = {
        key: sum(sum(scrapes[-1][name]) - sum(scrapes[0].get(name, ())) for scrapes in read)
        for key, name in names.items()
        if not key.startswith("gauge")
    }
    rate = _gauge(names.get("gauge_rate"), read)
    if grown.get("drafts"):
        length, rate = 1 + grown["accepted"] / grown["drafts"], grown["accepted"] / grown["drafted"]
    elif grown.get("verified"):
        length = grown["generated"] / grown["verified"]
    elif not grown and (measured := _gauge(names.get("gauge_length"), read)) is not None:
        length = measured
    else:
        return None
    return Acceptance(length, rate, f"/metrics of {title.partition(' (')[0]}: {', '.join(names.values())}")


def _gauge(name: str | None, read: t.Sequence[t.Sequence[Values]]) -> float | None:
    """Return the mean of the readings other than 0, which an engine reports as long as it has drafted nothing."""
    found = [statistics.fmean(s[name]) for scrapes in read for s in scrapes[1:] if name in s] if name else []
    found = [value for value in found if value]
    return statistics.fmean(found) if found else None


def acceptance_of_log(text: str, entries: t.Mapping[str, Plain]) -> Acceptance | None:
    """Return the acceptance in an engine's log lines, or None if there are none."""
    for entry in entries.values():
        for way in entry["log"]:
            lines = [found.groupdict() for found in re.finditer(way["line"], text)]
            weights = [float(line.get("drafted") or 1) for line in lines]
            if not sum(weights):
                continue
            lengths = [float(line["length"]) for line in lines]
            rates = [float(line["rate"]) if line.get("rate") else float(line["percent"]) / 100 for line in lines]
            return Acceptance(
                statistics.fmean(lengths, weights),
                statistics.fmean(rates, weights),
                f"{len(lines)} lines of {entry['title'].partition(' (')[0]}'s log",
            )
    return None


def memory_of_log(text: str, entries: t.Mapping[str, Plain]) -> dict[str, float]:
    """Return the memory in a rank's log, weights_gib and kv_gib, as far as it is unambiguous."""
    for entry in entries.values():
        weights, cache = (
            [sum(float(size) for size in found.groups() if size) for found in re.finditer(entry["memory"][key], text)]
            for key in ("weights", "cache")
        )
        if weights:
            # With several pools, as with sliding windows or a drafter, the log does not say which is which.
            return {"weights_gib": weights[0]} | ({"kv_gib": round(cache[0], 2)} if len(cache) == 1 else {})
    return {}


def waited(scrapes: t.Sequence[str], entry: Plain) -> tuple[float, float]:
    """Return the most requests seen running and waiting at one time during a load."""
    read = [values_of(text) for text in scrapes]
    running, waiting = (
        max((sum(values.get(entry[key], ())) for values in read), default=0.0) for key in ("running", "waiting")
    )
    return running, waiting
