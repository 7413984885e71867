"""A strict reader of Prometheus's text format, by its specification: it refuses what the node exporter would refuse."""

from __future__ import annotations

import re

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parse(text: str) -> Samples:
    """Return (name, labels) -> value. ValueError for an invalid line, a repeated sample, or one outside its family."""
    assert text.endswith("\n")
    found: Samples = {}
    helped: list[str] = []
    kinds: dict[str, str] = {}
    for line in text[:-1].split("\n"):
        if match := re.fullmatch(rf"# HELP ({_NAME}) ([^\n]+)", line):
            if match[1] in helped:
                raise ValueError(f"a second HELP: {line}")
            helped.append(match[1])
        elif match := re.fullmatch(rf"# TYPE ({_NAME}) (counter|gauge)", line):
            if match[1] in kinds or match[1] != helped[-1]:
                raise ValueError(f"a TYPE in the wrong place: {line}")
            kinds[match[1]] = match[2]
        elif match := _SAMPLE.fullmatch(line):
            name, labels = match[1], _labels(match[2] or "")
            if not helped or helped[-1] != name or name not in kinds:
                raise ValueError(f"a sample outside its family: {line}")
            if (kinds[name] == "counter") != name.endswith("_total"):
                raise ValueError(f"counters end in _total, and nothing else does: {line}")
            if (name, labels) in found:
                raise ValueError(f"it comes twice: {line}")
            found[name, labels] = float(match[3])
        else:
            raise ValueError(f"no line of the format: {line!r}")
    return found


def _labels(text: str) -> frozenset[tuple[str, str]]:
    pairs, at = [], 0
    while at < len(text):
        match = _LABEL.match(text, at)
        if not match:
            raise ValueError(f"no labels: {text!r}")
        pairs.append((match[1], match[2]))
        at = match.end()
    if len(dict(pairs)) != len(pairs):
        raise ValueError(f"a label comes twice: {text!r}")
    return frozenset(pairs)
