"""How far estimates are off: errors by class, and the interval that holds most figures. Read by fit_estimates.py."""

from __future__ import annotations

import collections
import dataclasses
import math
import statistics
import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model import estimate
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model.speculation import Draft
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile.profile import Profile

UNSTATED = 0.5
SHARE = 0.8  # of the figures that an interval holds


@dataclasses.dataclass(frozen=True)
class Point:
    """One measured figure. accepted: tokens per step, if the row states them. alike: all requests brought one text. waits: a long
    prompt and a short answer, so that decoding waits for the prefill of others."""

    config: str
    group: str
    profile: Profile
    settings: t.Mapping[str, t.Any]
    draft: Draft | None
    requests: int
    measured: float
    patched: bool
    context: float | None
    accepted: float | None
    source: str
    alike: bool = False
    waits: bool = False


def weights(points: t.Sequence[Point]) -> list[float]:
    """Return each point's weight (see the module's docstring)."""
    rows = collections.Counter(p.config for p in points)
    configs = {g: len({p.config for p in points if p.group == g}) for g in {p.group for p in points}}
    share = {p.config: UNSTATED if p.draft and not p.accepted else 1.0 for p in points}
    return [share[p.config] / rows[p.config] / math.sqrt(configs[p.group]) for p in points]


def of_blocks(draft: Draft) -> bool:
    """Whether the drafter makes all its tokens in one pass."""
    return draft.algorithm.upper() in estimate.BLOCK_DRAFTERS


def quantile(values: t.Sequence[float], share: float) -> float:
    """Return the value that this share of the values does not exceed, interpolated linearly."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def near(requests: int) -> str:
    """Return the shown level that a figure belongs to."""
    return f"n{min(estimate.LEVELS, key=lambda level: abs(math.log(level / requests)))}"


def kind_of(point: Point) -> str:
    """Return the kind of interval that a figure belongs to."""
    return "plain" if not point.draft else "blocks" if of_blocks(point.draft) else "drafted"


def wanted(points: t.Sequence[Point], level: str, kind: str) -> list[int]:
    """Return the places of the figures that an interval is made of.

    Without speculation, only stock builds; with it, all builds, since other owners draft only on patched ones.
    """
    return [
        i
        for i, p in enumerate(points)
        if kind_of(p) == kind and (kind != "plain" or not p.patched) and near(p.requests) == level
    ]


def factors(points: t.Sequence[Point], values: t.Sequence[float], level: str, kind: str) -> list[float]:
    """Return the factors below and above an estimate that hold SHARE of the figures at about so many requests.

    Each model counts as in the fit. The tails are those of one model more, which is the next one (as in a conformal interval).
    """
    places = wanted(points, level, kind)
    some = [points[i] for i in places]
    ordered = sorted(zip([-values[i] for i in places], weights(some), strict=True))
    models = len({p.group for p in some})
    tail = max(0.0, (1 - SHARE) / 2 * (models + 1) / models - 1 / models) if models else 0.0
    whole, sofar, found = sum(w for _v, w in ordered), 0.0, []
    for value, weight in ordered:
        sofar += weight
        while len(found) < 2 and sofar >= (tail, 1 - tail)[len(found)] * whole - 1e-9:
            found.append(round(math.exp(value), 2))
    return [min(found[0], 1.0), max(found[1], 1.0)]


def intervals(points: t.Sequence[Point], values: t.Sequence[float]) -> dict[str, dict[str, list[float]]]:
    """Return the intervals of plain and of drafted configurations and of drafters of blocks, each by the number of requests.

    Of drafters of blocks there are few models, whose figures hang on the text: theirs holds those of all numbers of requests.
    """
    shown = {
        name: {f"n{n}": factors(points, values, f"n{n}", name) for n in estimate.LEVELS}
        for name in ("plain", "drafted")
    }
    levels = [f"n{n}" for n in estimate.LEVELS if wanted(points, f"n{n}", "blocks")]
    ends = [factors(points, values, level, "blocks") for level in levels]
    widest = [min([1.0, *(low for low, _high in ends)]), max([1.0, *(high for _low, high in ends)])]
    return shown | {"blocks": {f"n{n}": widest for n in estimate.LEVELS}}


def held(points: t.Sequence[Point], values: t.Sequence[float]) -> list[bool]:
    """Return whether each figure is in the interval made without its model."""
    found = [False] * len(points)
    for group in {p.group for p in points}:
        kept = [i for i, p in enumerate(points) if p.group != group]
        shown = intervals([points[i] for i in kept], [values[i] for i in kept])
        for i, p in enumerate(points):
            if p.group == group:
                low, high = shown[kind_of(p)][near(p.requests)]
                found[i] = low <= math.exp(-values[i]) <= high
    return found


def kinds(point: Point) -> t.Iterator[str]:
    """Yield the classes in which errors are counted."""
    yield "all"
    yield "patched build" if point.patched else "stock build"
    yield f"engine {point.profile.engine.name}"
    yield f"nodes {point.profile.nodes}"
    yield "drafter " + ("none" if not point.draft else "of blocks" if of_blocks(point.draft) else "of tokens")
    if not point.draft:
        yield f"engine {point.profile.engine.name} without drafts"
        yield f"nodes {point.profile.nodes} without drafts"
    yield near(point.requests).replace("n", "requests ")
    yield f"source {'logs of this stack' if point.source == 'log' else 'other owners'}"


def apart(points: t.Sequence[Point]) -> t.Iterator[str]:
    """Yield how far owners are apart who run one model, in the same formats, drafts and spread, with as many requests."""
    same = collections.defaultdict(list)
    for p in points:
        if p.source != "log":
            precision = tuple(sorted((kind, str(form)) for kind, form in p.profile.precision.items()))
            draft = (p.draft.algorithm, p.draft.steps) if p.draft else None
            same[p.group, p.profile.nodes, precision, draft, p.requests].append(p)
    for name, drafted in (("without drafts", False), ("with drafts", True)):
        ratios = [
            max(a.measured, b.measured) / min(a.measured, b.measured) - 1
            for of in same.values()
            for i, a in enumerate(of)
            for b in of[i + 1 :]
            if a.config != b.config and bool(a.draft) == drafted
        ]
        if ratios:
            yield f"Owners of one configuration {name} are apart by a median of {statistics.median(ratios):.0%} ({len(ratios)} pairs)"


def classes(points: t.Sequence[Point], values: t.Sequence[float], stated: t.Sequence[float]) -> t.Iterator[str]:
    """Yield the table of errors of left-out models: each configuration counts once, then each model once.

    stated: the errors with the tokens per step that the rows state; the rows' own lines come last.
    """
    inside = held(points, values)
    yield "| left out | models | configurations | median error | of models | bias | inside 80 % |"
    yield "|---|---|---|---|---|---|---|"
    names = list(dict.fromkeys(sorted((k for p in points for k in kinds(p)), key=lambda k: (k != "all", k))))
    for name in names:
        own = [(p, v, i) for p, v, i in zip(points, values, inside, strict=True) if name in kinds(p)]
        some, off = [p for p, _v, _i in own], [v for _p, v, _i in own]
        middle, _most, models = summary(some, off)
        configs = collections.defaultdict(list)
        for point, value, _inside in own:
            configs[point.config].append(value)
        bias = math.exp(statistics.median(statistics.fmean(v) for v in configs.values()))
        share = statistics.fmean(i for _p, _v, i in own)
        yield (
            f"| {name} | {len({p.group for p in some})} | {len(configs)} | {middle:.1%} | {models:.1%} | {bias:.2f} | "
            f"{share:.0%} of {len(own)} |"
        )
    for kind in ("blocks", "drafted"):
        own_ = [(p, v) for p, v in zip(points, stated, strict=True) if p.accepted and kind_of(p) == kind]
        if own_:
            some, off = [p for p, _v in own_], [v for _p, v in own_]
            middle, _most, models = summary(some, off)
            name = "of blocks" if kind == "blocks" else "of tokens"
            yield (
                f"| drafter {name}, the tokens of a step being those that the row states | {len({p.group for p in some})} | "
                f"{len({p.config for p in some})} | {middle:.1%} | {models:.1%} | {math.exp(statistics.median(off)):.2f} | |"
            )


def by_config(points: t.Sequence[Point], values: t.Sequence[float]) -> dict[str, float]:
    """Return each configuration's mean of |error|."""
    found = collections.defaultdict(list)
    for point, value in zip(points, values, strict=True):
        found[point.config].append(abs(math.expm1(value)))
    return {config: statistics.fmean(errors) for config, errors in found.items()}


def summary(points: t.Sequence[Point], values: t.Sequence[float]) -> tuple[float, float, float]:
    """Return the median over configurations, their 90th percentile, and the median over models of their configurations' median."""
    errors = by_config(points, values)
    groups = collections.defaultdict(dict)
    for point in points:
        groups[point.group][point.config] = errors[point.config]
    models = [statistics.median(own.values()) for own in groups.values()]
    return statistics.median(errors.values()), quantile(list(errors.values()), 0.9), statistics.median(models)
