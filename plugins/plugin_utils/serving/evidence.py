# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was measured: equal and near rows for a configuration, the best row for a traffic shape, rows to hand on."""

from __future__ import annotations

import functools
import math
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge

KIND = "evidence"

Verdict = t.Literal["stable", "crash", "garbage"]

# Settings that change neither whether a configuration runs nor how fast: they never make two configurations differ.
_IRRELEVANT = frozenset(
    [
        "schedule_policy",
        "watchdog_timeout",
        "dist_timeout",
        "reasoning_parser",
        "tool_call_parser",
        "chat_template",
        "served_model_name",
        "trust_remote_code",
        "host",
        "port",
        "log_level",
        "enable_metrics",
    ]
)
# Settings that decide between a crash and a stable run. Where a row does not state one, nobody knows what it ran with,
# and a configuration that sets it is not the row's equal.
_DECISIVE = frozenset(
    [
        "moe_runner_backend",
        "attention_backend",
        "fp4_gemm_backend",
        "disable_cuda_graph",
        "disable_piecewise_cuda_graph",
        "quantization",
        "kv_cache_dtype",
        "enable_expert_parallel",
    ]
)
# Settings that are off where a row does not state them: speculation is what a log never leaves out.
_OFF_IF_UNSTATED = ("speculative_", "speculative_config")


@dataclass(frozen=True)
class Configuration:
    """What is to be run, or was: enough to say whether two runs are the same.

    image: None where unknown. settings: the engine's settings by our names (its flags with underscores).
    """

    model: str
    engine: str
    version: str
    nodes: int
    tp: int
    pp: int
    ep: int
    image: str | None = None
    settings: t.Mapping[str, t.Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """A measured row. measured: tokens/s at n1, n4, n8 and memory in GiB."""

    id: str
    run: Configuration
    verdict: Verdict
    measured: t.Mapping[str, float]
    source: tuple[str, ...]
    status: str = ""
    case: str = ""
    note: str = ""
    origin: str = ""

    @functools.cached_property
    def counted(self) -> tuple[tuple[str, t.Any, bool], ...]:
        """The settings that count: name, value, and whether the row alone having it makes a difference."""
        settings = self.run.settings
        return tuple((key, value, _decides(key)) for key, value in settings.items() if key not in _IRRELEVANT)


@dataclass(frozen=True)
class Comparison:
    """A row beside a configuration. differs: key -> (the row's, the configuration's); unstated: what the row omits."""

    row: Row
    differs: dict[str, tuple[t.Any, t.Any]]
    unstated: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether the row is evidence for this very configuration."""
        return not self.differs


@dataclass(frozen=True)
class Witness:
    """All that the rows say of a configuration: equal ones, and near ones, nearest first."""

    equal: tuple[Comparison, ...]
    near: tuple[Comparison, ...]

    @property
    def verdicts(self) -> frozenset[Verdict]:
        """What equal rows came to."""
        return frozenset(c.row.verdict for c in self.equal)


def row_of(entry: t.Mapping[str, t.Any]) -> Row:
    """Build a row of a checked entry of kind `evidence`."""
    engine = entry["engine"]
    return Row(
        id=entry["id"],
        run=Configuration(
            model=entry["model"],
            engine=engine["name"],
            version=engine["version"],
            image=engine.get("image"),
            nodes=entry["nodes"],
            tp=entry["tp"],
            pp=entry["pp"],
            ep=entry["ep"],
            settings=entry["settings"],
        ),
        verdict=entry["verdict"],
        measured=entry["measured"],
        source=tuple(entry["source"]),
        status=entry.get("status", ""),
        case=entry.get("case", ""),
        note=entry.get("note", ""),
        origin=entry.get("origin", ""),
    )


def load_rows(overlays: t.Sequence[str] = ()) -> tuple[Row, ...]:
    """Return all rows, the owner's included; KnowledgeError names the file and the row of a bad one."""
    return tuple(row_of(entry) for entry in knowledge.load(KIND, overlays).values())


@functools.cache
def _release(version: str) -> str:
    match = re.match(r"\d+\.\d+\.\d+", version)
    return match.group() if match else version


def _same(first: t.Any, second: t.Any) -> bool:
    if isinstance(first, (int, float)) and isinstance(second, (int, float)):
        return math.isclose(float(first), float(second))
    return bool(first == second)


def compare(run: Configuration, row: Row) -> Comparison:
    """Say what differs between a configuration and a row.

    A setting that the row states and the configuration leaves open is no difference, unless it decides.
    """
    differs: dict[str, tuple[t.Any, t.Any]] = {}
    measured = row.run
    for key in ("model", "engine", "nodes", "tp", "pp", "ep"):
        if getattr(measured, key) != getattr(run, key):
            differs[key] = (getattr(measured, key), getattr(run, key))
    if _release(measured.version) != _release(run.version):
        differs["version"] = (measured.version, run.version)
    if measured.image and run.image and measured.image != run.image:
        differs["image"] = (measured.image, run.image)
    unstated = []
    for key in sorted((set(measured.settings) | set(run.settings)) - _IRRELEVANT):
        theirs, ours = measured.settings.get(key), run.settings.get(key)
        if key.startswith(_OFF_IF_UNSTATED) or key in _DECISIVE or (key in measured.settings and key in run.settings):
            if not _same(theirs, ours):
                differs[key] = (theirs, ours)
        elif key not in measured.settings:
            unstated.append(key)
    return Comparison(row, differs, tuple(unstated))


def _counts(run: Configuration) -> dict[str, t.Any]:
    return {key: value for key, value in run.settings.items() if key not in _IRRELEVANT}


@functools.cache
def _decides(key: str) -> bool:
    return key in _DECISIVE or key.startswith(_OFF_IF_UNSTATED)


def _distance(run: Configuration, ours: t.Mapping[str, t.Any], deciding: t.Sequence[str], row: Row) -> int:
    """Count what differs, as `compare` does, without listing it."""
    measured = row.run
    count = sum(
        (
            measured.nodes != run.nodes,
            measured.tp != run.tp,
            measured.pp != run.pp,
            measured.ep != run.ep,
            _release(measured.version) != _release(run.version),
            bool(measured.image and run.image and measured.image != run.image),
        )
    )
    theirs = measured.settings
    for key, value, decides in row.counted:
        if key in ours:
            count += value != ours[key]
        elif value is not None:
            count += decides
    return count + sum(key not in theirs for key in deciding)


def witness(run: Configuration, rows: t.Iterable[Row], limit: int = 5) -> Witness:
    """Find the rows that speak of a configuration: equal ones, and up to `limit` near ones of the same model."""
    ours = _counts(run)
    deciding = [key for key, value in ours.items() if value is not None and _decides(key)]
    own = [row for row in rows if row.run.model == run.model and row.run.engine == run.engine]
    ranked = sorted(((_distance(run, ours, deciding, row), row.id, row) for row in own), key=lambda item: item[:2])
    equal = tuple(compare(run, row) for count, _id, row in ranked if count == 0)
    nearest = [row for count, _id, row in ranked if count][:limit]
    return Witness(equal, tuple(compare(run, row) for row in nearest))


# --- traffic shapes -------------------------------------------------------------------------------------------------

SHAPES: dict[str, str] = {"single": "n1", "agents": "n4", "throughput": "n8"}
MIXED = "mixed"


@dataclass(frozen=True)
class Recommendation:
    """The best measured row for a shape. losses: n -> what it gives away of the best known there, from 0 to 1."""

    shape: str
    row: Row | None
    losses: dict[str, float]
    reason: str


def recommend_row(model: str, shape: str, rows: t.Iterable[Row]) -> Recommendation:
    """Choose the best stable row of a model for a traffic shape.

    single, agents, throughput: the most tokens/s at n = 1, 4, 8. mixed: the compromise with the highest geometric mean
    of the three, each as a share of the best row there. Row is None where nothing was measured; FabricError for an
    unknown shape.
    """
    if shape not in SHAPES and shape != MIXED:
        raise FabricError(f"traffic shape: {shape!r} is not one of {', '.join((*SHAPES, MIXED))}.")
    stable = [row for row in rows if row.run.model == model and row.verdict == "stable"]
    wanted = list(SHAPES.values()) if shape == MIXED else [SHAPES[shape]]
    candidates = [row for row in stable if all(key in row.measured for key in wanted)]
    if not candidates:
        what = "at n = 1, 4 and 8" if shape == MIXED else f"at n = {wanted[0][1:]}"
        return Recommendation(shape, None, {}, f"No stable row of {model} was measured {what}: nothing is proven.")
    best = {
        key: max((row.measured[key] for row in stable if key in row.measured), default=0.0) for key in SHAPES.values()
    }

    def merit(row: Row) -> float:
        return math.prod(row.measured[key] / best[key] for key in wanted)

    chosen = max(candidates, key=lambda row: (merit(row), row.id))
    losses = {key: round(1 - chosen.measured[key] / best[key], 4) for key in SHAPES.values() if key in chosen.measured}
    if shape == MIXED:
        given = ", ".join(f"{100 * loss:.0f} % at n = {key[1:]}" for key, loss in losses.items())
        reason = f"Best geometric mean over n = 1, 4, 8; it gives away {given} against the best row there."
    else:
        key = wanted[0]
        reason = f"{chosen.measured[key]:g} tokens/s at n = {key[1:]}, the most of {len(candidates)} stable rows."
    return Recommendation(shape, chosen, losses, reason)


# --- rows to hand on ------------------------------------------------------------------------------------------------


def row_to_export(
    run: Configuration,
    row_id: str,
    verdict: Verdict,
    measured: t.Mapping[str, float],
    source: t.Sequence[str],
    note: str = "",
) -> dict[str, t.Any]:
    """Return a row in the form in which owners' rows come in; KnowledgeError where it would not be accepted."""
    row: dict[str, t.Any] = {
        "id": row_id,
        "model": run.model,
        "engine": {"name": run.engine, "version": _release(run.version), "image": run.image},
        "nodes": run.nodes,
        "tp": run.tp,
        "pp": run.pp,
        "ep": run.ep,
        "settings": dict(run.settings),
        "verdict": verdict,
        "measured": dict(measured),
        "source": list(source),
        "verified": "measured",
    }
    if _release(run.version) != run.version:
        row["engine"]["build"] = run.version
    if note:
        row["note"] = note
    knowledge.validate(KIND, row, f"row {row_id!r}")
    return row
