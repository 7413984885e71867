# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a number of Sparks can run: every profile and variant as the planner judges it, without a cluster. GiB and tokens/s.

The planner (plan.py) decides: there is no second memory model, and no second judgement.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import hardware, near_names, run_values

from ..judgement.plan import launch_plan
from ..model.model import BYTES, Format
from ..profile.profile import Profile, entries, find, resolve

Plain = dict[str, t.Any]
State = t.Literal["fits", "tight", "not known", "does not fit"]
LEVELS = ("n1", "n4", "n8")
MIB_PER_GIB = 1024
HARDWARE = "spark"


@dataclass(frozen=True)
class Choice:
    """One variant of a profile. sparks: how many it runs on; quantization: how most of its weights are stored.

    context: tokens, or "auto" if the engine fits it to the memory. left_gib: what stays free on each Spark. speed: by level;
    low and high: its interval if it is estimated. origin: where the figures come from: "measured" by an equal stable run,
    "estimated", or "" if there are none; source: the run, or the estimate's basis. why: what prevents it, or what to know
    about one that fits.
    """

    profile: str
    variant: str
    title: str
    model: str
    sparks: int
    engine: str
    quantization: str
    state: State
    verdict: str = ""
    context: int | str | None = None
    left_gib: float | None = None
    speed: dict[str, float] = field(default_factory=dict)
    low: dict[str, float] = field(default_factory=dict)
    high: dict[str, float] = field(default_factory=dict)
    origin: str = ""
    source: str = ""
    why: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The profile, and its variant if it has any."""
        return self.profile if self.variant == "default" else f"{self.profile} {self.variant}"

    @property
    def runs(self) -> bool:
        """Whether it fits, if only just."""
        return self.state in ("fits", "tight")


@dataclass(frozen=True)
class Catalogue:
    """Every variant of every profile. fits: those that run, in the order asked for; others: the rest."""

    sparks: int
    sort: str
    fits: tuple[Choice, ...]
    others: tuple[Choice, ...]


def _speed(level: str) -> t.Callable[[Choice], t.Any]:
    return lambda each: (level not in each.speed, -each.speed.get(level, 0.0))


_PROVEN = ("proven", "unproven", "blocked", "")
# What an owner can sort by, best first.
SORTS: dict[str, t.Callable[[Choice], t.Any]] = {
    "verdict": lambda each: (_PROVEN.index(each.verdict), each.state != "fits", _speed("n1")(each)),
    "speed": _speed("n1"),
    "throughput": _speed("n8"),
    "memory": lambda each: -(each.left_gib or 0.0),
    "context": lambda each: -(each.context if isinstance(each.context, int) else 0),
    "sparks": lambda each: (each.sparks, _speed("n1")(each)),
    "model": lambda each: each.model.casefold(),
}


def catalogue(
    sparks: int, sort: str = "verdict", knowledge_dirs: t.Sequence[str] = (), profiles: t.Sequence[str] | None = None
) -> Catalogue:
    """Return what this many Sparks can run.

    sort: a key of SORTS. knowledge_dirs: the owner's, whose profiles and measurements count too. profiles: None means all.
    Raises CollectionError for a number of Sparks that cannot be, an unknown order, and unreadable knowledge.
    """
    if not run_values.is_count(sparks):
        raise CollectionError(str(run_values.wrong_count(sparks)))
    if sort not in SORTS:
        told = near_names.meant(sort, SORTS)
        raise CollectionError(f"sort: {sort!r} is not one of {', '.join(SORTS)}. {told}".rstrip())
    dirs = tuple(knowledge_dirs)
    known = sorted(entries(dirs)) if profiles is None else profiles
    found = [choice for name in known for choice in of_profile(name, sparks, dirs)]
    return arranged(sparks, sort, found)


def arranged(sparks: int, sort: str, found: t.Iterable[Choice]) -> Catalogue:
    """Return the variants in an order, a key of SORTS; those that do not run apart."""
    ordered = sorted(found, key=lambda each: (SORTS[sort](each), each.profile, each.variant))
    last = sorted((each for each in ordered if not each.runs), key=lambda each: (each.sparks, each.profile))
    return Catalogue(sparks, sort, tuple(each for each in ordered if each.runs), tuple(last))


def of_profile(name: str, sparks: int, dirs: t.Sequence[str] = ()) -> t.Iterator[Choice]:
    """Yield the variants of a profile. One that needs more Sparks is not planned."""
    try:
        entry = find(name, dirs)
    except CollectionError as exc:
        yield Choice(name, "default", name, name, 0, "", "", "does not fit", why=(str(exc),))
        return
    for variant in entry.get("variants") or ("default",):
        overrides = {} if variant == "default" else {"variant": variant}
        try:
            chosen = resolve(entry, overrides)
            if chosen.nodes > sparks:
                yield _choice(chosen, variant, {}, "does not fit", (f"needs {chosen.nodes} Sparks",))
            else:
                yield _judged(chosen, variant, launch_plan(name, overrides, dirs), dirs)
        except CollectionError as exc:
            model = str(entry.get("model", name))
            yield Choice(
                name, variant, str(entry.get("title", name)), model, 0, "", "", "does not fit", why=(str(exc),)
            )


def _judged(chosen: Profile, variant: str, plan: Plain, dirs: t.Sequence[str]) -> Choice:
    errors = [f"{each['rule']}: {each['message']}" for each in plan["findings"] if each["severity"] == "error"]
    if errors:
        return _choice(chosen, variant, plan, "does not fit", errors)
    memory = plan["memory"]
    if not memory:
        return _choice(
            chosen, variant, plan, "not known", ["the model's facts are not known, so its memory is not planned"]
        )
    if memory["kv_tokens"] == 0:
        return _choice(
            chosen, variant, plan, "tight", [f"needs {memory['free_needed_gib']:.1f} GiB free on each Spark"]
        )
    guard = hardware.guard_if_any(HARDWARE, dirs)
    floor = guard["load"]["floor_mib"] / MIB_PER_GIB if guard else 0.0
    if _left(memory) < floor:
        return _choice(chosen, variant, plan, "tight", [f"leaves less than the memory guard's {floor:g} GiB"])
    return _choice(chosen, variant, plan, "fits", ())


def _left(memory: t.Mapping[str, t.Any]) -> float:
    return max(float(memory["free_gib"]) - float(memory["used_gib"]), 0.0)


def _choice(chosen: Profile, variant: str, plan: Plain, state: State, why: t.Sequence[str]) -> Choice:
    memory = plan.get("memory") or {}
    figures: Plain = {}
    rows = [each for each in plan.get("evidence", ()) if each["equal"] and each["verdict"] == "stable"]
    rows = [each for each in rows if any(each.get(level) is not None for level in LEVELS)]
    if rows:
        row = max(rows, key=lambda each: sum(each.get(level) is not None for level in LEVELS))
        figures = {"speed": {level: float(row[level]) for level in LEVELS if row.get(level) is not None}}
        figures |= {"origin": "measured", "source": f"{row['id']}: {row['source'][0]}"}
    elif estimate := plan.get("estimate"):
        figures = {key: {level: estimate[level] for level in LEVELS} for key in ("speed",)}
        figures |= {key: dict(estimate[key]) for key in ("low", "high")}
        figures |= {"origin": "estimated", "source": str(estimate["basis"])}
    context = (plan.get("resolved", {}).get("context_length") or {}).get("value") or (
        chosen.facts.native_context if chosen.facts else None
    )
    return Choice(
        chosen.id,
        variant,
        chosen.title,
        chosen.model,
        chosen.nodes,
        f"{chosen.engine.name} {chosen.engine.version}",
        _stored(chosen, memory),
        state,
        str(plan.get("verdict", "")),
        context,
        round(_left(memory), 1) if memory else None,
        why=tuple(why),
        **figures,
    )


def _stored(chosen: Profile, memory: t.Mapping[str, t.Any]) -> str:
    """Return the format of most weights: of the kind of tensor with the most of them, by count and not by size."""
    counted = {
        kind: size / BYTES.get(_most(chosen.precision.get(kind, "bf16")), 2.0)
        for kind, size in (memory.get("weights_by_kind") or {}).items()
    }
    usual = "experts" if chosen.precision["experts"] != "bf16" else "dense"
    return _most(chosen.precision.get(max(counted, key=counted.__getitem__, default=usual), "bf16"))


def _most(form: Format) -> str:
    """Return the format of most weights of one kind."""
    if isinstance(form, str):
        return form
    counted = {name: float(count) for name, count in form.items() if name != "rest"}
    return max(counted, key=counted.__getitem__, default=str(form.get("rest", "bf16")))
