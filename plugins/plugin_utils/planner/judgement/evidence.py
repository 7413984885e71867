# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measured rows: equal and near rows for a configuration, the best row for a traffic shape, rows to export."""

from __future__ import annotations

import functools
import math
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils import secret_names
from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import release, same_release

from ..vocabulary.hub_names import model_key
from ..vocabulary.images import Images, find_image, load_images
from ..vocabulary.settings import Tables, load_tables, read_layer
from .conditions import Condition, View, compiled
from .patches import load_patches
from .resolved import Resolved

KIND = "evidence"

Verdict = t.Literal["stable", "crash", "garbage"]


@dataclass(frozen=True)
class Configuration:
    """A configuration to run, or that ran: enough to tell whether two runs are the same.

    image: None if unknown. settings: the engine's settings by our names (its flags with underscores). environment: the
    owner's variables that do not express a setting. patches: the start-up patches of its launch.
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
    revision: str | None = None
    environment: t.Mapping[str, str] = field(default_factory=dict)
    patches: tuple[str, ...] = ()

    @functools.cached_property
    def spread(self) -> tuple[t.Any, ...]:
        """What runs where, in the order of `_SPREAD`."""
        return (model_key(self.model), *(getattr(self, key) for key in _SPREAD[1:]))


@dataclass(frozen=True, eq=False)
class Row:
    """A measured row. measured: tokens/s at n1, n4, n8 and memory in GiB; requests: how many were answered, by n.

    free_gib: before the load, if known. complete: the source has the whole command, so anything the row does not state was not set. caveat: the note counts
    against the row.
    """

    id: str
    run: Configuration
    verdict: Verdict
    measured: t.Mapping[str, t.Any]
    source: tuple[str, ...]
    status: str = ""
    case: str = ""
    note: str = ""
    caveat: bool = False
    origin: str = ""
    requests: t.Mapping[str, t.Any] = field(default_factory=dict)
    complete: bool = False
    free_gib: float | None = None

    @functools.cached_property
    def most(self) -> int:
        """The highest number of concurrent requests that was measured; 1 if the row states none."""
        return max((int(key[1:]) for key in self.measured if re.fullmatch(r"n\d+", key)), default=1)

    def figure(self, key: str) -> float | None:
        """Tokens/s at n1, n4 …; None if not measured, or if some requests failed."""
        count = self.requests.get(key)
        failed = isinstance(count, t.Mapping) and count.get("failed")
        return None if failed or key not in self.measured else float(self.measured[key])

    @property
    def lost(self) -> tuple[str, ...]:
        """The requests that failed, whose answer a guard ended among them, by n."""
        return tuple(
            f"{count['failed']} of {count.get('ok', 0) + count['failed']} requests failed at n = {key[1:]}"
            for key, count in self.requests.items()
            if isinstance(count, t.Mapping) and count.get("failed")
        )

    @property
    def blemishes(self) -> tuple[str, ...]:
        """What counts against the row despite its verdict: failed requests, a note marked as a caveat."""
        return (*self.lost, *((self.note,) if self.caveat else ()))

    @property
    def proves(self) -> bool:
        """Whether a plan equal to the row is proven: it was stable, and every answer passed."""
        return self.verdict == "stable" and not self.lost


@dataclass(frozen=True)
class Comparison:
    """A row compared with a plan. differs: key -> (the row's, the plan's); assumed: version defaults that the row leaves open."""

    row: Row
    differs: dict[str, tuple[t.Any, t.Any]]
    assumed: dict[str, t.Any]

    @property
    def equal(self) -> bool:
        """Whether the row is evidence for exactly this configuration."""
        return not self.differs


@dataclass(frozen=True)
class MatchingRows:
    """All rows that concern a configuration: equal ones, and near ones, nearest first.

    way_out: if an equal row failed, the nearest stable row with a different configuration.
    """

    equal: tuple[Comparison, ...]
    near: tuple[Comparison, ...]
    way_out: Comparison | None = None

    @property
    def verdicts(self) -> frozenset[Verdict]:
        """The verdicts of the equal rows."""
        return frozenset(c.row.verdict for c in self.equal)

    @property
    def proven(self) -> bool:
        """Whether an equal row proves the configuration, and none of them lost a request."""
        return any(c.row.proves for c in self.equal) and not any(c.row.lost for c in self.equal)


@dataclass(frozen=True, eq=False)
class Standard:
    """How rows are compared: harmless and decisive settings with their conditions, and known images with several names.

    same_numerics: patches that do not change computed results.
    """

    harmless: t.Mapping[str, Condition | None]
    decisive: t.Mapping[str, Condition | None]
    images: Images
    same_numerics: frozenset[str] = frozenset()

    def same_image(self, one: str | None, other: str | None) -> bool:
        """Whether two references name one image: the same string, or two names of one known entry. Unknown images are never equal."""
        if one is None or other is None:
            return False
        if one == other:
            return True
        entries = [find_image(self.images, name) for name in (one, other)]
        return bool(entries[0]) and entries[0] is entries[1]


def entries(overlays: t.Sequence[str] = ()) -> t.Mapping[str, knowledge.Entry]:
    """Return all measured rows by id, as they are written. Treat the entries as read-only."""
    return knowledge.shared(KIND, tuple(overlays))


def decisive(overlays: t.Sequence[str] = ()) -> list[str]:
    """Return the settings that decide whether a configuration runs (`knowledge/comparison`)."""
    known = knowledge.shared("comparison", tuple(overlays)).values()
    return [entry["id"] for entry in known if entry["kind"] == "decisive"]


def load_standard(overlays: t.Sequence[str] = ()) -> Standard:
    """Load the comparison standard, including the owner's entries."""
    kinds: dict[str, dict[str, Condition | None]] = {"harmless": {}, "decisive": {}}
    for entry in knowledge.load("comparison", overlays).values():
        where = f"{entry['origin']}: {entry['id']!r}"
        kinds[entry["kind"]][entry["id"]] = compiled(entry["when"], where) if "when" in entry else None
    same_numerics = frozenset(patch.id for patch in load_patches(overlays) if patch.effect != "numerics")
    return Standard(kinds["harmless"], kinds["decisive"], load_images(overlays), same_numerics)


def row_of(entry: t.Mapping[str, t.Any], tables: Tables) -> Row:
    """Build a row from a validated entry of kind `evidence`, with settings under their canonical names."""
    engine = entry["engine"]
    where = f"{entry.get('origin', 'row')}: row {entry['id']!r}"
    dialect = tables.dialect(engine["name"], engine["version"])
    settings, environment, faults, _given = read_layer(entry["settings"], entry.get("environment", {}), dialect)
    if faults:
        raise knowledge.KnowledgeError(f"{where}: {faults[0]}")
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
            settings={key: value for key, value in settings.items() if value is not None},
            revision=entry.get("revision"),
            environment={key: str(value) for key, value in environment.items()},
            patches=tuple(entry.get("patches", ())),
        ),
        verdict=entry["verdict"],
        measured=entry["measured"],
        source=tuple(entry["source"]),
        status=entry.get("status", ""),
        case=entry.get("case", ""),
        note=entry.get("note", ""),
        caveat=entry.get("caveat", False),
        origin=entry.get("origin", ""),
        requests=entry["measured"].get("requests", {}),
        complete=entry.get("complete", False),
        free_gib=entry.get("free_gib"),
    )


def load_rows(overlays: t.Sequence[str] = ()) -> tuple[Row, ...]:
    """Return all rows, including the owner's. KnowledgeError names the file and the row of a bad one."""
    tables = load_tables(overlays)
    return tuple(row_of(entry, tables) for entry in knowledge.load(KIND, overlays).values())


def _same(first: t.Any, second: t.Any) -> bool:
    if type(first) is type(second) and not isinstance(first, float):
        return bool(first == second)
    if isinstance(first, (int, float)) and isinstance(second, (int, float)) and not isinstance(first, bool):
        return math.isclose(float(first), float(second))
    if isinstance(first, str) and isinstance(second, (dict, list)):
        first, second = second, first
    if isinstance(second, str) and isinstance(first, (dict, list)):  # JSON as a string and as an object
        try:
            second = from_json(second)
        except ValueError:
            return False
    return bool(first == second)


@dataclass(frozen=True, eq=False)
class Run:
    """A configuration with its resolved settings. document: the part of the plan that conditions read.

    free_gib: free before the load, if measured. starved: with that memory the cache is empty, which explains a crash.
    """

    configuration: Configuration
    resolved: Resolved
    document: t.Mapping[str, t.Any]
    default: t.Callable[[str], t.Any]
    free_gib: float | None = None
    starved: bool = False

    @functools.cached_property
    def view(self) -> View:
        """The document's view for conditions, shared by all rows compared with this run."""
        return View(self.document)

    @functools.cached_property
    def values(self) -> dict[str, t.Any]:
        """Effective values other than flag defaults: the resolved value, or UNKNOWN."""
        left_open = {key: UNKNOWN for key, by in self.resolved.by.items() if by == "unknown"}
        return {**self.resolved.settings, **left_open}


class _Unknown:
    """A value that only the running engine decides."""

    def __repr__(self) -> str:
        return "decided by the engine"


UNKNOWN = _Unknown()
NOT_STATED = "not stated"
NOT_SET = "not set"
FREE_KNOB = "mem_fraction_static"  # a share of what is free; vLLM's is one of the total
FREE_SAME = 1.0  # GiB by which MemAvailable differs between boots of one configuration
_SPREAD = ("model", "engine", "nodes", "tp", "pp", "ep")


def _identity(run: Configuration, row: Row, standard: Standard) -> dict[str, tuple[t.Any, t.Any]]:
    measured = row.run
    differs: dict[str, tuple[t.Any, t.Any]] = {}
    if measured.spread != run.spread:
        pairs = zip(_SPREAD, measured.spread, run.spread, strict=True)
        differs |= {key: (theirs, ours) for key, theirs, ours in pairs if theirs != ours}
    if not same_release(measured.version, run.version):
        differs["version"] = (measured.version, run.version)
    if not standard.same_image(measured.image, run.image):
        differs["image"] = (measured.image, run.image)
    if measured.revision and run.revision and measured.revision != run.revision:
        differs["revision"] = (measured.revision, run.revision)
    if run.environment or measured.environment:
        differs |= _variables(run.environment, measured.environment, standard)
    if run.patches or measured.patches:
        theirs, ours = (sorted(set(each.patches) - standard.same_numerics) for each in (measured, run))
        if theirs != ours:
            differs["patches"] = (theirs or NOT_STATED, ours)
    return differs


def _memory(ours: Run, row: Row, theirs: Run) -> dict[str, tuple[t.Any, t.Any]]:
    """Return free memory if it makes a share of it another one: less than a stable row had, or more than one that had too little."""
    if FREE_KNOB not in ours.values or ours.free_gib is None or theirs.free_gib is None:
        return {}
    less, more = theirs.free_gib - ours.free_gib > FREE_SAME, ours.free_gib - theirs.free_gib > FREE_SAME
    if (less and row.verdict == "stable") or (more and theirs.starved):
        return {"free_gib": (theirs.free_gib, round(ours.free_gib, 1))}
    return {}


def _variables(
    ours: t.Mapping[str, str], theirs: t.Mapping[str, str], standard: Standard
) -> dict[str, tuple[t.Any, t.Any]]:
    """Return the variables that differ. All count: an engine and its libraries read more of them than any table lists."""
    return {
        f"environment.{name}": (theirs.get(name, NOT_SET), ours.get(name, NOT_SET))
        for name in sorted(ours.keys() | theirs.keys())
        if name not in standard.harmless and not secret_names.secret(name) and ours.get(name) != theirs.get(name)
    }


def compare(ours: Run, row: Row, theirs: Run, standard: Standard) -> Comparison:
    """Compare what a plan runs with what a row ran.

    Settings the row leaves open count as its version's defaults and become `assumed`; a decisive setting never does.
    """
    differs: dict[str, tuple[t.Any, t.Any]] = {}
    assumed: dict[str, t.Any] = {}
    written = row.run.settings
    our_by, their_by = ours.resolved.by, theirs.resolved.by
    our_values, their_values = ours.values, theirs.values
    for key in our_by.keys() | their_by.keys():
        mine = our_values[key] if key in our_values else ours.default(key)
        other = their_values[key] if key in their_values else theirs.default(key)
        if key in written and type(mine) is type(other) and mine == other:
            continue
        stated = row.complete or key in written or (their_by.get(key) == "default" and _follows(key, written))
        if not stated and key in standard.decisive:
            condition = standard.decisive[key]
            if condition is None or ours.view.holds(condition) is not False:
                differs[key] = (NOT_STATED, mine)
                continue
        if mine is other or _same(mine, other):
            if not stated and key in ours.resolved.settings and our_by[key] != "default":
                assumed[key] = other
            continue
        if key in standard.harmless:
            condition = standard.harmless[key]
            if condition is None or condition.holds(
                {**ours.document, "row": _object(other), "plan": _object(mine), "most": row.most}
            ):
                continue
        differs[key] = (_plain(other), _plain(mine))
    differs = _identity(ours.configuration, row, standard) | _memory(ours, row, theirs) | dict(sorted(differs.items()))
    return Comparison(row, differs, dict(sorted(assumed.items())))


def _follows(key: str, written: t.Mapping[str, t.Any]) -> bool:
    """Whether an unstated value follows from stated ones: an algorithm's draft tokens."""
    return key.startswith("speculative_") and "speculative_algorithm" in written


def _plain(value: t.Any) -> t.Any:
    return repr(value) if value is UNKNOWN else value


def _object(value: t.Any) -> t.Any:
    """Return a value for conditions: a JSON object in a string is parsed."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            return from_json(value)
        except ValueError:
            return value
    return _plain(value)


def _distance(run: Run, row: Row, standard: Standard) -> int:
    """Count the differences in settings that both state, without resolving the row."""
    theirs = row.run.settings
    count = len(_identity(run.configuration, row, standard))
    asked, runs = run.configuration.settings, run.resolved.settings
    for key, value in theirs.items():
        if key in standard.harmless or key not in runs:
            continue
        mine = runs[key]
        # Most values are simply equal, and for each setting of each row the call would cost more than this comparison.
        if (type(value) is type(mine) and value == mine) or _same(value, mine):
            continue
        count += not (key in asked and _same(value, asked[key]))
    return count


def rows_seen(
    run: Run,
    rows: t.Iterable[Row],
    standard: Standard,
    ran: t.Callable[[Row], Run],
    limit: int = 5,
) -> MatchingRows:
    """Find the rows that concern a configuration: equal ones, and up to `limit` near ones of the same model.

    ran: resolves a row the way the plan is resolved. Only rows whose stated settings are near enough are resolved.
    """
    of = run.configuration
    own = [row for row in rows if row.run.spread[:2] == of.spread[:2]]
    ranked = sorted(((_distance(run, row, standard), row.id, row) for row in own), key=lambda item: item[:2])
    # Engine overrides can make a row equal even if it states other values, so compare the nearest ones in full.
    close = [row for count, _id, row in ranked if count == 0] + [row for count, _id, row in ranked if count][
        : limit + 2
    ]
    compared = sorted(
        (compare(run, row, ran(row), standard) for row in close), key=lambda found: (len(found.differs), found.row.id)
    )
    equal = tuple(found for found in compared if found.equal)
    near = tuple(found for found in compared if not found.equal)[:limit]
    way_out = None
    if any(found.row.verdict != "stable" for found in equal):
        stable = (compare(run, row, ran(row), standard) for _count, _id, row in ranked if row.proves)
        way_out = next((found for found in (*near, *stable) if found.differs and found.row.proves), None)
    return MatchingRows(equal, near, way_out)


# --- traffic shapes -------------------------------------------------------------------------------------------------

SHAPES: dict[str, str] = {"single": "n1", "agents": "n4", "throughput": "n8"}
MIXED = "mixed"


@dataclass(frozen=True)
class Recommendation:
    """The best measured row for a shape. losses: n -> its loss against the best row at that n, from 0 to 1."""

    shape: str
    row: Row | None
    losses: dict[str, float]
    reason: str


NOISE = 0.03  # two runs of one configuration differ by up to this share


def recommend_row(
    model: str,
    shape: str,
    rows: t.Iterable[Row],
    among: t.Container[str] | None = None,
    preferred: t.Container[str] = (),
) -> Recommendation:
    """Choose the best stable row of a model for a traffic shape.

    single, agents, throughput: the most tokens/s at n = 1, 4, 8. mixed: the highest geometric mean of the three, each as a
    share of the best row at that n. A figure with failed requests does not count.
    among: ids of the rows to choose from; preferred: ids that win if they are equally good within the noise.
    Row is None if nothing was measured; CollectionError for an unknown shape.
    """
    if shape != MIXED and (not isinstance(shape, str) or shape not in SHAPES):
        raise CollectionError(f"traffic shape: {shape!r} is not one of {', '.join((*SHAPES, MIXED))}.")
    figures = {
        row: {key: figure for key in SHAPES.values() if (figure := row.figure(key)) is not None}
        for row in rows
        if model_key(row.run.model) == model_key(model) and row.verdict == "stable"
    }
    wanted = list(SHAPES.values()) if shape == MIXED else [SHAPES[shape]]
    candidates = [
        row for row, own in figures.items() if set(wanted) <= own.keys() and (among is None or row.id in among)
    ]
    if not candidates:
        what = "at n = 1, 4 and 8" if shape == MIXED else f"at n = {wanted[0][1:]}"
        return Recommendation(
            shape, None, {}, f"No stable row of {model} has a speed {what}: there is none to choose by."
        )
    best = {key: max((own[key] for own in figures.values() if key in own), default=0.0) for key in SHAPES.values()}

    def merit(row: Row) -> float:
        return math.prod(figures[row][key] / best[key] for key in wanted) ** (1 / len(wanted))

    chosen = max(candidates, key=lambda row: (merit(row), not row.blemishes, row.id))
    usual = [row for row in candidates if row.id in preferred and merit(row) >= (1 - NOISE) * merit(chosen)]
    chosen = max(usual, key=lambda row: (merit(row), row.id), default=chosen)
    own = figures[chosen]
    losses = {key: round(1 - own[key] / best[key], 4) for key in SHAPES.values() if key in own}
    if shape == MIXED:
        given = ", ".join(f"{100 * loss:.0f} % at n = {key[1:]}" for key, loss in losses.items())
        reason = f"Best geometric mean over n = 1, 4, 8; it loses {given} against the best row there."
    else:
        key = wanted[0]
        reason = f"{own[key]:g} tokens/s at n = {key[1:]}, the most of {len(candidates)} stable rows."
        if losses[key] > 0:
            reason = f"{own[key]:g} tokens/s at n = {key[1:]}; the best row has {best[key]:g}."
    return Recommendation(shape, chosen, losses, reason)


# --- rows to export -------------------------------------------------------------------------------------------------


def row_to_export(
    run: Configuration,
    row_id: str,
    verdict: Verdict,
    measured: t.Mapping[str, float],
    source: t.Sequence[str],
    note: str = "",
    free_gib: float | None = None,
) -> dict[str, t.Any]:
    """Return a row in the format of owners' rows. free_gib: before the load, if it was measured. Raises KnowledgeError if it would not be accepted."""
    row: dict[str, t.Any] = {
        "id": row_id,
        "model": run.model,
        "engine": {"name": run.engine, "version": str(release(run.version)), "image": run.image},
        "nodes": run.nodes,
        "tp": run.tp,
        "pp": run.pp,
        "ep": run.ep,
        "complete": True,
        "settings": dict(run.settings),
        "verdict": verdict,
        "measured": dict(measured),
        "source": list(source),
        "verified": "measured",
    }
    if own := {name: value for name, value in run.environment.items() if not secret_names.secret(name)}:
        row["environment"] = own
    if run.patches:
        row["patches"] = sorted(run.patches)
    if str(release(run.version)) != run.version:
        row["engine"]["build"] = run.version
    if free_gib:
        row["free_gib"] = free_gib
    if note:
        row["note"] = note
    knowledge.validate(KIND, row, f"row {row_id!r}")
    return row
