# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interprets a collective's bus bandwidth: which band it falls in, and how certain the suggested cause is.

Bands are data (`knowledge/bands`). A band only suggests a cause; the transport log or the port counters confirm it or
rule it out. Both are given as *signs*, whose names are in the bands' schema.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

Certainty = t.Literal["suspected", "confirmed", "ruled out"]


@dataclass(frozen=True, slots=True)
class Band:
    """A range of bus bandwidth in GB/s, both ends included; `high` None means unbounded."""

    verdict: t.Literal["pass", "warn", "suspect"]
    low: float
    high: float | None
    message: str
    cause: str | None = None
    remedy: str = ""
    confirmed_by: frozenset[str] = frozenset()
    refuted_by: frozenset[str] = frozenset()
    source: tuple[str, ...] = ()

    def holds(self, busbw: float) -> bool:
        """Whether a figure is in the band."""
        return self.low <= busbw and (self.high is None or busbw <= self.high)

    def __str__(self) -> str:
        return f"{self.low:g} GB/s and more" if self.high is None else f"{self.low:g} to {self.high:g} GB/s"


@dataclass(frozen=True, slots=True)
class BandSet:
    """An operation's bands, for messages of at least `min_bytes`, the best first."""

    id: str
    min_bytes: int
    bands: tuple[Band, ...]
    source: tuple[str, ...] = ()

    def find(self, busbw: float) -> Band | None:
        """Return the band of a figure; where two bands meet, the first listed."""
        return next((band for band in self.bands if band.holds(busbw)), None)


def choose(
    entries: t.Iterable[t.Mapping[str, t.Any]], hardware: str, operation: str, topology: str, nodes: int, ports: int
) -> BandSet | None:
    """Return the bands for an operation on this many nodes of a hardware class, or None if none are known.

    entries: of `knowledge/bands`. ports: in use on each node. An entry for this exact number of nodes beats one for any number.
    """
    fitting = [
        entry
        for entry in entries
        if entry["hardware"] == hardware
        and operation in entry["operations"]
        and topology in entry["topologies"]
        and entry.get("ports", ports) == ports
        and entry.get("nodes", nodes) == nodes
    ]
    if not fitting:
        return None
    best = max(fitting, key=lambda entry: "nodes" in entry)
    return BandSet(best["id"], best["min_bytes"], tuple(map(_band, best["bands"])), tuple(best["source"]))


def _band(entry: t.Mapping[str, t.Any]) -> Band:
    low, high = float(entry["from"]), entry.get("to")
    if high is not None and high <= low:
        raise CollectionError(f"bands: a band from {low:g} to {high:g} GB/s is empty. Correct its `from` or `to`.")
    return Band(
        verdict=entry["verdict"],
        low=low,
        high=None if high is None else float(high),
        message=entry["message"],
        cause=entry.get("cause"),
        remedy=entry.get("remedy", ""),
        confirmed_by=frozenset(entry.get("confirmed_by", ())),
        refuted_by=frozenset(entry.get("refuted_by", ())),
        source=tuple(entry["source"]),
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """The interpretation of a figure. verdict `unknown`: outside every band, message too small, or no band for this cluster."""

    verdict: t.Literal["pass", "warn", "suspect", "unknown"]
    message: str
    band: Band | None = None
    certainty: Certainty | None = None


def read(busbw: float, size: int, bands: BandSet | None, signs: t.Collection[str] = ()) -> Reading:
    """Classify a bus bandwidth (GB/s) at a message size (bytes), and weigh the suspected cause against the signs."""
    if bands is None:
        return Reading("unknown", "no band is known for this operation on such a cluster")
    if size < bands.min_bytes:
        return Reading("unknown", f"messages below {bytes_text(bands.min_bytes)} are not judged by bandwidth")
    band = bands.find(busbw)
    if band is None:
        return Reading("unknown", "that is in no known band")
    if band.verdict == "pass":
        return Reading("pass", band.message, band)
    return Reading(band.verdict, band.message, band, certainty(band, signs))


def certainty(band: Band, signs: t.Collection[str]) -> Certainty:
    """Return how certain a band's cause is. Contradictory signs leave it suspected."""
    confirmed, refuted = band.confirmed_by & set(signs), band.refuted_by & set(signs)
    if confirmed and not refuted:
        return "confirmed"
    return "ruled out" if refuted and not confirmed else "suspected"


def bytes_text(size: int) -> str:
    """Format a size in the largest binary unit that divides it evenly."""
    for exponent, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size >= 1024**exponent and size % 1024**exponent == 0:
            return f"{size // 1024**exponent} {unit}"
    return f"{size} B"
