# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a matrix to its cases: plans the combinations, merges equal ones, reports blocked ones, and orders the rest.

Two cases are equal if the engine would run with the same settings, whatever the file says. Pure but for the planner.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import pathlib
import statistics
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import (
    ESTIMATE_LEVELS,
    SHAPES,
    promised_speed,
)

KIND = "matrices"
Plain = dict[str, t.Any]

_SPREAD = ("nodes", "tp", "pp", "ep")
_ENGINE = ("version", "image")
_ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True)
class Matrix:
    """A checked entry of kind `matrices`. minutes: per case, until the journal knows better."""

    id: str
    title: str
    profile: str
    base: t.Mapping[str, t.Any]
    axes: t.Mapping[str, t.Any]
    exclude: tuple[t.Mapping[str, t.Any], ...]
    cases: t.Mapping[str, t.Mapping[str, t.Any]]
    accept: tuple[str, ...]
    repeats: int
    workloads: tuple[str, ...]
    levels: tuple[int, ...]
    minutes: float
    rows: tuple[str, ...]
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Promise:
    """The expected result of a case. kind: from an equal row, an estimate, a near row, or unknown; figures: tokens/s by n1, n4, n8."""

    kind: t.Literal["measured", "estimate", "near", "unknown"] = "unknown"
    figures: t.Mapping[str, float] = field(default_factory=dict)
    row: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One configuration. labels: its value on each axis; blocked: why it will not run; also: names of equal cases."""

    id: str
    name: str
    labels: t.Mapping[str, str]
    overrides: t.Mapping[str, t.Any]
    plan: t.Mapping[str, t.Any]
    blocked: str = ""
    also: tuple[str, ...] = ()
    promise: Promise = Promise()

    @property
    def sockets_planned(self) -> bool:
        """Whether NCCL is to use TCP."""
        return bool((self.plan.get("resolved") or {}).get("nccl_transport", {}).get("value") == "socket")


class Plan(t.Protocol):
    """Plans a case: `launch_plan` with profile, cluster and the owner's knowledge bound."""

    def __call__(self, overrides: t.Mapping[str, t.Any]) -> Plain:
        """Return the plan. CollectionError if there is nothing to plan."""


def matrix_of(entry: t.Mapping[str, t.Any]) -> Matrix:
    """Build a matrix from a checked entry. CollectionError for an exclusion that names an unknown axis or value."""
    bench = entry.get("bench", {})
    made = Matrix(
        id=entry["id"],
        title=entry["title"],
        profile=entry["profile"],
        base=entry.get("base", {}),
        axes=entry.get("axes", {}),
        exclude=tuple(entry.get("exclude", ())),
        cases=entry.get("cases", {}),
        accept=tuple(entry.get("accept", ())),
        repeats=entry.get("repeats", 1),
        workloads=tuple(bench.get("workloads", ())),
        levels=tuple(bench.get("levels", ())),
        minutes=float(entry.get("minutes", 30)),
        rows=tuple(entry.get("rows", ())),
        source=tuple(entry["source"]),
    )
    for number, exclusion in enumerate(made.exclude):
        for axis, values in exclusion.items():
            where = f"matrix {made.id!r}: exclude.{number}.{axis}"
            if axis not in made.axes:
                raise CollectionError(f"{where}: there is no such axis. Axes: {', '.join(made.axes) or 'none'}.")
            known = [label for label, _choices in _values(axis, made.axes[axis])]
            for label in map(_label, values if isinstance(values, list) else [values]):
                if label not in known:
                    raise CollectionError(f"{where}: {label!r} is not a value of the axis. Values: {', '.join(known)}.")
    return made


def known(overlays: t.Sequence[str] = ()) -> t.Mapping[str, knowledge.Entry]:
    """Return all matrices by id, shipped and the owner's. Treat the entries as read-only."""
    return knowledge.shared(KIND, tuple(overlays))


def load(name: str, overlays: t.Sequence[str] = ()) -> Matrix:
    """Return a matrix by its id, shipped or the owner's, or from a file. KnowledgeError names a bad entry."""
    if not name.endswith((".yml", ".yaml")):
        return matrix_of(knowledge.get(KIND, name, overlays))
    place = pathlib.Path(name).expanduser()
    entry = knowledge.read_yaml(place)
    knowledge.validate(KIND, entry, str(place))
    return matrix_of(entry)


def _label(value: t.Any) -> str:
    return (
        {True: "on", False: "off", None: "unset"}.get(value, str(value))
        if isinstance(value, (bool, type(None)))
        else str(value)
    )


def _values(axis: str, values: t.Any) -> list[tuple[str, t.Mapping[str, t.Any]]]:
    if isinstance(values, t.Mapping):
        return [(str(label), choices) for label, choices in values.items()]
    return [(_label(value), {axis: value}) for value in values]


def combinations(matrix: Matrix) -> list[tuple[str, dict[str, str], Plain]]:
    """Return name, labels and choices of every case not excluded: first the combinations of the axes, then the named cases."""
    found: list[tuple[str, dict[str, str], Plain]] = []
    axes = [[(axis, *value) for value in _values(axis, values)] for axis, values in matrix.axes.items()]
    for picked in itertools.product(*axes) if axes else ():
        labels = {axis: label for axis, label, _choices in picked}
        if any(_excluded(labels, exclusion) for exclusion in matrix.exclude):
            continue
        choices: Plain = {}
        for _axis, _chosen, more in picked:
            choices = _laid(choices, more)
        found.append(("/".join(labels.values()), labels, choices))
    found += [(name, {"case": name}, dict(choices)) for name, choices in matrix.cases.items()]
    return found


def _laid(under: t.Mapping[str, t.Any], over: t.Mapping[str, t.Any]) -> Plain:
    """Merge choices over others: settings are replaced whole, environment variables by name."""
    made = {**under, **over}
    if _ENVIRONMENT in under and _ENVIRONMENT in over:
        made[_ENVIRONMENT] = {**under[_ENVIRONMENT], **over[_ENVIRONMENT]}
    return made


def _excluded(labels: t.Mapping[str, str], exclusion: t.Mapping[str, t.Any]) -> bool:
    return all(
        labels[axis] in map(_label, values if isinstance(values, list) else [values])
        for axis, values in exclusion.items()
    )


def overrides_of(matrix: Matrix, choices: t.Mapping[str, t.Any], under: t.Mapping[str, t.Any] | None = None) -> Plain:
    """Return the overrides of a case for `launch_plan` and the role. under: the owner's own overrides."""
    made: Plain = {}
    for key, value in _laid(matrix.base, choices).items():
        if key in _SPREAD:
            made.setdefault("parallel", {})[key] = value
        elif key in _ENGINE:
            made.setdefault("engine", {})[key] = value
        elif key in ("variant", _ENVIRONMENT):
            made[key] = value
        else:
            made.setdefault("settings", {})[key] = value
    if matrix.accept:
        made["accept"] = list(matrix.accept)
    return knowledge.merged(under or {}, made)


def identity(plan: t.Mapping[str, t.Any]) -> Plain:
    """Return a case's identity: model, engine, parallelism, every setting the engine runs with, and its environment variables."""
    runs = {key: found["value"] for key, found in plan["resolved"].items() if found["by"] != "unknown"}
    return {
        "model": plan["model"],
        "engine": plan["engine"],
        "parallel": plan["parallel"],
        "settings": {**plan["settings"], **runs},
        **({_ENVIRONMENT: plan[_ENVIRONMENT]} if plan.get(_ENVIRONMENT) else {}),
    }


def digest(value: t.Any) -> str:
    """Return a short hash of a plain value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def planned(
    matrix: Matrix, plan: Plan, under: t.Mapping[str, t.Any] | None = None, done: t.Container[str] = ()
) -> list[Case]:
    """Return all cases: those to run, the most promising first, then the blocked ones in the file's order.

    done: ids of measured cases, which their own rows may have blocked since. CollectionError with the reasons if none is done and
    none would run, because then the file is usually at fault.
    """
    by_id: dict[str, Case] = {}
    for name, labels, choices in combinations(matrix):
        overrides = overrides_of(matrix, choices, under)
        try:
            made = plan(overrides)
        except CollectionError as exc:
            key = digest([matrix.profile, overrides])
            by_id[key] = Case(key, name, labels, overrides, {}, blocked=str(exc))
            continue
        if made.get("variant", "default") != "default":
            # Pin the variant, so that a better row does not switch this case to another variant later.
            overrides = {**overrides, "variant": made["variant"]}
        key = digest(identity(made))
        if key in by_id:
            first = by_id[key]
            by_id[key] = Case(**{**_fields(first), "also": (*first.also, name)})
            continue
        by_id[key] = Case(key, name, labels, overrides, made, _reason(made), (), promise(made))
    cases = list(by_id.values())
    runnable = [case for case in cases if not case.blocked]
    if not runnable and not any(case.id in done for case in cases):
        reasons = dict.fromkeys(case.blocked for case in cases)
        raise CollectionError(f"matrix {matrix.id!r}: no case would run. {' '.join(reasons)}"[:2000])
    place = {case.id: number for number, case in enumerate(cases)}
    worth = _worth(runnable)
    # Cases about which nothing is known come last, in the file's order.
    runnable.sort(key=lambda case: (case.promise.kind == "unknown", -worth[case.id], place[case.id]))
    return [*runnable, *(case for case in cases if case.blocked)]


def _worth(cases: t.Sequence[Case]) -> dict[str, float]:
    """Return by id what a case promises relative to the others: the geometric mean of its figures, each over their median.

    This way a case measured at n = 8 only does not come before those measured at 1, 4 and 8.
    """
    figures: dict[str, list[float]] = {}
    for case in cases:
        for key, value in case.promise.figures.items():
            figures.setdefault(key, []).append(value)
    usual = {key: statistics.median(values) for key, values in figures.items()}
    shares = {case.id: [value / usual[key] for key, value in case.promise.figures.items()] for case in cases}
    return {key: statistics.geometric_mean(each) if each else 0.0 for key, each in shares.items()}


def _fields(case: Case) -> Plain:
    return {name: getattr(case, name) for name in Case.__slots__}


def _reason(plan: t.Mapping[str, t.Any]) -> str:
    if plan["verdict"] != "blocked":
        return ""
    return " ".join(f["message"] for f in plan["findings"] if f["severity"] == "error")


def promise(plan: t.Mapping[str, t.Any]) -> Promise:
    """Return a plan's expected result: an equal stable row's figures, else its estimate, else those of the nearest row."""
    figures = {f"n{n}": value for n in ESTIMATE_LEVELS if (value := promised_speed(plan, n)) is not None}
    stable = [row for row in plan["evidence"] if row["verdict"] == "stable" and _figures(row)]
    equal = next((row for row in stable if row["equal"]), None)
    if figures:
        return Promise("measured", figures, equal["id"]) if equal else Promise("estimate", figures)
    near = min(stable, key=lambda row: len(row["differs"]), default=None)
    return Promise("near", _figures(near), near["id"]) if near else Promise()


def _figures(row: t.Mapping[str, t.Any]) -> dict[str, float]:
    return {key: float(row[key]) for key in SHAPES.values() if row.get(key)}
