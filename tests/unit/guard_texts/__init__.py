"""Texts to measure the guards with as a classifier: benign ones and garbage, in families, split into one half to tune on and one to test on.

All are our own or made here from a seed, so that any licence fits. A family is a function of a random generator and the question asked
that returns an answer. What engines really write is imitated from reports, and the family says from which;
the rest is imagined, and says so. A family is in one half only. What is `blind` was written after the guards and by other methods.
"""

from __future__ import annotations

import importlib
import random
import typing as t
from dataclasses import dataclass

Make = t.Callable[[random.Random, str], str]
Half = t.Literal["tune", "test", "blind"]


@dataclass(frozen=True)
class Family:
    """source: where such texts were seen, or why they are here."""

    name: str
    half: Half
    garbage: bool
    source: str
    make: Make


FAMILIES: dict[str, Family] = {}


def family(half: Half, garbage: bool, source: str) -> t.Callable[[Make], Make]:
    def kept(make: Make) -> Make:
        name = make.__name__.replace("_", " ").strip()
        assert name not in FAMILIES, name
        FAMILIES[name] = Family(name, half, garbage, source, make)
        return make

    return kept


def of(half: Half, garbage: bool) -> list[Family]:
    """Return the families of one half and kind."""
    for name in ("benign", "garbage", "prose", "blind"):  # each adds its families
        importlib.import_module(f"{__name__}.{name}")
    return [each for each in FAMILIES.values() if (each.half, each.garbage) == (half, garbage)]
