# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure a cluster before and after an update: `verify`, and a short `bench` of what is served, as the owner would run them."""

from __future__ import annotations

import json
import pathlib
import time
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import MIB, read_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain, to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import children
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.update import Proof, tokens_of

STEPS = ("verify", "bench")
_LIMIT_S = 7200.0
_PAUSE_S = 30.0

Plain = dict[str, t.Any]
Play = t.Callable[[str, pathlib.Path], str]


def player(options: t.Sequence[str]) -> Play:
    """Return what runs one of our playbooks with these options, and returns the end of its output. The output goes beside its report."""

    def play(name: str, report: pathlib.Path) -> str:
        more = {"dgxspark_report_file": str(report)} | ({"dgxspark_bench_mode": "quick"} if name == "bench" else {})
        command = [*children.PROGRAM, *options, "-e", json.dumps(more), f"dgxspark.cluster.{name}"]
        log = report.with_suffix(".log")
        _status, late = children.run(command, log, _LIMIT_S)
        return f"it did not end within {_LIMIT_S:.0f} s; see {log}" if late else f"see {log}"

    return play


def prove(
    play: Play, folder: pathlib.Path, name: str, run: t.Sequence[str], wait_s: float = 0.0, pause_s: float = _PAUSE_S
) -> Proof:
    """Run the steps; return what was measured. wait_s: how long a model may take until it answers again."""
    unknown = [step for step in run if step not in STEPS]
    if unknown:
        raise CollectionError(f"spark_update_proof: {', '.join(unknown)} is none of {', '.join(STEPS)}.")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return _prove(play, folder, name, run, wait_s, pause_s)
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise CollectionError(f"{folder}: what was measured cannot be kept or read: {exc!r}") from exc


def _prove(play: Play, folder: pathlib.Path, name: str, run: t.Sequence[str], wait_s: float, pause_s: float) -> Proof:
    verdict, tokens, why = None, None, []
    if "verify" in run:
        report, said = _fresh(play, "verify", folder / f"{name}-verify.json")
        verdict = str(report["verdict"]) if report else "missing"
        if verdict != "passed":
            why.append(f"verify: {report['headline'] if report else said}")
    if "bench" in run:
        until = time.monotonic() + wait_s
        while True:
            report, said = _fresh(play, "bench", folder / f"{name}-bench.json")
            if report or time.monotonic() >= until:
                break
            time.sleep(pause_s)
        tokens = tokens_of(report) if report else None
        if tokens is None:
            why.append(f"bench measured nothing: {said}")
    return Proof(verdict, tokens, tuple(why))


def _fresh(play: Play, name: str, place: pathlib.Path) -> tuple[Plain | None, str]:
    place.unlink(missing_ok=True)
    said = play(name, place)
    return (read_json(place) if place.exists() else None), said


def keep(place: pathlib.Path, wanted: t.Mapping[str, str], proof: Proof) -> None:
    """Note the first measurement: a run that was killed is resumed with it."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        place.write_text(
            json.dumps({"wanted": dict(wanted), "proof": to_plain(proof)}, indent=2) + "\n", encoding="utf-8"
        )
    except OSError as exc:
        raise CollectionError(f"{place} cannot be written: {exc}") from exc


def kept(place: pathlib.Path, wanted: t.Mapping[str, str]) -> Proof | None:
    """Return the first measurement of this very update, if an earlier run has noted it."""
    try:
        if not place.exists():
            return None
        noted = read_json(place, most=MIB)
        return from_plain(Proof, noted["proof"], str(place)) if noted["wanted"] == dict(wanted) else None
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise CollectionError(f"{place}: it is not the record of an update ({exc}). Remove it.") from exc
