# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole serving plan. Plain values in, plain values out."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    CollectionError,
    Finding,
    worst_first,
)

from ..model import estimate, speculation
from ..model.memory import Free, Pools
from ..model.model import Parallelism, check_parallelism
from ..profile import model_files
from ..profile.profile import Profile, find, resolve
from ..vocabulary import images, kept_secrets
from ..vocabulary.builder import BuildArgv, builder
from ..vocabulary.hub_names import is_repository, model_key
from . import evidence, findings, judged, ranks, remedies, verdict
from .cluster import ANYWHERE, Cluster, Machines, hosts_of
from .knowledge_base import Base, base
from .resolved import Resolved

Plain = dict[str, t.Any]


def _dict(value: t.Any) -> Plain:
    """Return a dataclass as a dictionary, without copying its values."""
    return dict(vars(value))


def _round(value: t.Any) -> t.Any:
    return round(value, 2) if isinstance(value, float) else value


def memory_plain(pools: Pools | None) -> Plain:
    """Return the memory plan under the plan's names: GiB, shares, counts. Empty for an unknown model."""
    if pools is None:
        return {}
    plain = {key: _round(value) for key, value in _dict(pools).items() if key != "weights_by_kind"}
    renamed = {
        "free": "free_gib",
        "free_most": "free_most_gib",
        "weights": "weights_gib",
        "mamba": "mamba_gib",
        "kv": "kv_gib",
        "draft": "draft_gib",
        "graphs": "graphs_gib",
        "activations": "activations_gib",
        "context": "context_gib",
        "sampler": "sampler_gib",
        "sampler_needed": "sampler_needed_gib",
        "reserve": "reserve_gib",
        "load_peak": "load_peak_gib",
        "total": "total_gib",
    }
    plain = {renamed.get(key, key): value for key, value in plain.items()}
    return plain | {
        "used_gib": _round(pools.used),
        "kv_tokens_most": pools.kv_tokens_most,
        "free_needed_gib": _round(pools.free_needed),
        "free_assumed": pools.free_assumed,
        "weights_by_kind": {key: _round(value) for key, value in pools.weights_by_kind.items()},
        "floor": round(pools.floor, 4),
        "ceiling": round(pools.ceiling, 4),
    }


def _row_plain(found: evidence.Comparison) -> Plain:
    row = found.row
    return {
        "id": row.id,
        "source": list(row.source),
        "case": row.case,
        "verdict": row.verdict,
        "equal": found.equal,
        "differs": {key: {"row": theirs, "plan": ours} for key, (theirs, ours) in found.differs.items()},
        "assumed": found.assumed,
        "note": row.note,
        "blemishes": list(row.blemishes),
        **{key: row.measured.get(key) for key in ("n1", "n4", "n8", "accept_len")},
    }


def _machines(cluster: Cluster, hosts: t.Sequence[str], known: Base) -> Machines:
    """Return the ranks' machines; those that were not measured have what an idle Spark has."""
    return cluster.machines(hosts, Free(known.constant("memory.free_default"), known.constant("memory.free_most")))


def _finding_plain(found: Finding) -> Plain:
    return {
        "rule": found.id,
        "severity": found.severity,
        "names": list(found.names),
        "message": found.message,
        "remedy": found.remedy,
        "source": list(found.source),
    }


def _resolved_plain(runs: Resolved) -> Plain:
    """Return every setting the engine will run with, and its origin; what only the running engine decides is null."""
    return {key: {"value": runs.settings.get(key), "by": runs.by[key]} for key in sorted(runs.by)}


def _split(overrides: t.Mapping[str, t.Any] | None) -> tuple[Plain, t.Sequence[str]]:
    """Return the overrides of a profile, and the ids of findings that the owner accepts."""
    overrides = overrides or {}
    if not isinstance(overrides, t.Mapping):
        raise CollectionError(f"overrides: a dictionary is needed, not {type(overrides).__name__}.")
    ids = overrides.get("accept") or ()
    if not isinstance(ids, (list, tuple)) or not all(isinstance(name, str) for name in ids):
        raise CollectionError(f"overrides: accept: a list of findings' ids is needed, not {ids!r}.")
    return {key: value for key, value in overrides.items() if key != "accept"}, ids


@dataclasses.dataclass(frozen=True)
class Request:
    """What is to be planned. entry: the profile with the facts of its model's files; profile: with the owner's overrides."""

    entry: Plain
    profile: Profile
    known: Base
    accept: t.Sequence[str]
    knowledge_dirs: t.Sequence[str]
    of_files: t.Sequence[Finding]


@dataclasses.dataclass(frozen=True)
class _Result:
    """A plan of one profile. outcome: its findings, the worst first."""

    found: verdict.Judgement
    ranks: t.Sequence[ranks.Rank]
    outcome: remedies.Outcome
    kernel_known: bool


@dataclasses.dataclass(frozen=True)
class _Making:
    """What a plan and its remedies have in common."""

    request: Request
    cluster: Cluster
    build: BuildArgv

    def planned(self, chosen: Profile) -> _Result:
        """Plan a profile. Raises CollectionError if its ranks cannot be made."""
        known, entry = self.request.known, self.request.entry
        hosts = hosts_of(self.cluster, chosen.nodes)
        own = hosts[: chosen.nodes]
        machines, platform = _machines(self.cluster, own, known), self.cluster.platform
        on = verdict.Platform(platform, machines.kernels)
        found = verdict.judge(chosen, known, free=machines.free, platform=on, accept=self.request.accept)
        start = self.cluster.start(chosen, own, found.environment)
        made, notes = ranks.ranks(chosen, found.settings, hosts, start, self.build)
        told = [
            *found.findings,
            *self.request.of_files,
            *machines.findings,
            *start.findings,
            *findings.of_idle(chosen, hosts),
            *findings.of_mods(chosen, entry),
            *findings.of_drafter(chosen, found.settings),
            *findings.of_files(found.settings),
            *notes,
            *findings.of_variables(chosen, known.tables),
            *findings.of_recipe(entry),
            *findings.of_engine(chosen),
        ]
        kernel_known = bool(platform.get("kernel") or machines.kernels)
        return _Result(found, made, remedies.Outcome(tuple(worst_first(told)), found.offers), kernel_known)

    def changed(self, chosen: Profile, change: remedies.Change) -> remedies.Outcome | None:
        """Plan a profile with a remedy's change; None if it is refused."""
        settings = {**chosen.settings, **change.get("settings", {})}
        spread = {"nodes": chosen.nodes, **_dict(chosen.parallelism), **change.get("parallel", {})}
        parallelism = Parallelism(spread["tp"], spread["pp"], spread["ep"])
        kept = {key: value for key, value in settings.items() if value is not None}
        try:
            if chosen.facts:
                check_parallelism(chosen.facts, parallelism)
            return self.planned(
                dataclasses.replace(chosen, nodes=spread["nodes"], parallelism=parallelism, settings=kept)
            ).outcome
        except CollectionError:
            return None


def request(
    profile: str | Plain,
    overrides: t.Mapping[str, t.Any] | None = None,
    knowledge_dirs: t.Sequence[str] = (),
    files: t.Mapping[str, t.Any] | None = None,
) -> Request:
    """Read a profile and lay the owner's overrides on it; the arguments are those of `launch_plan`."""
    profile_overrides, accept = _split(overrides)
    entry, of_files = model_files.laid_on(find(profile, knowledge_dirs), files, knowledge_dirs)
    known = base(knowledge_dirs)
    chosen = resolve(entry, profile_overrides, known.tables)
    kept_secrets.of_profile(chosen.settings, chosen.environment)
    return Request(entry, chosen, known, accept, tuple(knowledge_dirs), of_files)


def launch_plan(
    profile: str | Plain,
    overrides: t.Mapping[str, t.Any] | None = None,
    knowledge_dirs: t.Sequence[str] = (),
    cluster: Cluster = ANYWHERE,
    build: BuildArgv | None = None,
    files: t.Mapping[str, t.Any] | None = None,
) -> Plain:
    """Plan a model's launch: verdict, findings, evidence, memory, estimated speed, start-up patches, ranks.

    overrides: variant, engine, parallel, settings, environment, accept (ids of error rules that the owner overrules). build:
    makes argv. files: the model's own (`model_files.read`), for facts that the profile does not state.
    Raises CollectionError if nothing can be planned: an unknown profile, key or value, too few nodes.
    """
    return plan_of(request(profile, overrides, knowledge_dirs, files), cluster, build)


def plan_of(asked: Request, cluster: Cluster = ANYWHERE, build: BuildArgv | None = None) -> Plain:
    """Plan what was asked for on a cluster's machines, as `launch_plan` does."""
    entry, chosen, known = asked.entry, asked.profile, asked.known
    build = build or builder(asked.knowledge_dirs, asked.accept, chosen.mods if "recipe" in entry else ())
    made = _Making(asked, cluster, build)
    result = made.planned(chosen)
    found = result.found
    told, ways = remedies.planned(result.outcome, lambda change: made.changed(chosen, change))
    state = found.verdict if not any(f.severity == "error" for f in told) else "blocked"
    plan: Plain = {
        "profile": chosen.id,
        "variant": chosen.variant,
        "title": chosen.title,
        "model": chosen.model,
        "proven": chosen.proven,
        "verdict": state,
        "conflict": found.conflict,
        "engine": {"name": chosen.engine.name, "version": chosen.engine.version, "image": chosen.engine.image},
        "parallel": {"nodes": chosen.nodes, **_dict(chosen.parallelism)},
        "settings": found.settings,
        "environment": dict(chosen.environment),
        "added": found.added,
        "speculation": _speculation(found),
        "chat": entry.get("chat", {}),
        "sampling": entry.get("sampling", {}),
        "recipe": entry.get("recipe", {}),
        "resolved": _resolved_plain(found.runs),
        "findings": [_finding_plain(f) | {"ways": ways.get(f.id, [])} for f in told],
        "evidence": [_row_plain(c) for c in (*found.rows_seen.equal, *found.rows_seen.near)],
        "memory": memory_plain(found.pools),
        "estimate": _estimate(chosen, known, found),
        "patches": [dict(patch) for patch in found.patches],
        "weights": _weights(chosen, found.settings),
        "ranks": [_dict(rank) for rank in result.ranks],
    }
    return plan | {"not_judged": judged.judged(plan, result.kernel_known)}


def _estimate(chosen: Profile, known: Base, found: verdict.Judgement) -> Plain:
    """Return the plan's estimated speed; empty if an equal row measured it, or the model is unknown."""
    if any(c.row.verdict == "stable" for c in found.rows_seen.equal):
        return {}
    running = dict(found.runs.settings)
    if found.pools and (fitting := found.pools.max_running_requests):
        running["max_running_requests"] = min(fitting, running.get("max_running_requests") or fitting)
    copies = known.constant("memory.canvas_copies", chosen.engine.name, chosen.engine.version)
    figures = dataclasses.replace(known.figures, canvas_copies=copies)
    kernels = images.own_kernels(known.images, chosen.engine.image)
    return estimate.estimate(chosen, running, found.draft, figures, kernels) or {}


def _weights(chosen: Profile, settings: t.Mapping[str, t.Any]) -> list[Plain]:
    """Return the repositories that ranks load: the model's, and the drafter's if one is set."""
    loaded = {chosen.model: chosen.revision}
    draft = settings.get("speculative_draft_model_path")
    if isinstance(draft, str) and is_repository(draft):
        own = chosen.drafter if chosen.drafter and model_key(chosen.drafter.model) == model_key(draft) else None
        loaded.setdefault(draft, own.revision if own else None)
    return [{"repo": repo, "revision": revision} for repo, revision in loaded.items()]


def _speculation(found: verdict.Judgement) -> Plain:
    if not found.draft:
        return {}
    draft = found.draft
    return {
        "algorithm": draft.algorithm,
        "steps": draft.steps,
        "topk": draft.topk,
        "tokens": draft.tokens,
        "forced": draft.forced,
    }


def memory_plan(
    profile: str | Plain,
    overrides: t.Mapping[str, t.Any] | None = None,
    knowledge_dirs: t.Sequence[str] = (),
    cluster: Cluster = ANYWHERE,
) -> Plain:
    """Return the memory plan of a single rank: the engine's knob with floor, ceiling and chosen value, and the pools."""
    profile_overrides, _accept = _split(overrides)
    chosen = resolve(find(profile, knowledge_dirs), profile_overrides)
    if chosen.facts is None:
        raise CollectionError(
            f"profile {chosen.id!r}: facts: the model's facts are unknown, so its memory is not planned. "
            "Give the profile its facts, from the model's config.json."
        )
    known = base(knowledge_dirs)
    hosts = hosts_of(cluster, chosen.nodes)
    found = verdict.judge(chosen, known, free=_machines(cluster, hosts[: chosen.nodes], known).free)
    return memory_plain(found.pools)


def recommend(profile: str | Plain, shape: str, knowledge_dirs: t.Sequence[str] = ()) -> Plain:
    """Return the best measured configuration of a profile's model for a traffic shape, and the matching variant.

    If no variant matches the best row, the best row that some variant matches is returned, and `better` names the other.
    Without such a row the profile's own choice is returned, marked unproven, and `reason` says so.
    """
    entry = find(profile, knowledge_dirs)
    known = base(knowledge_dirs)
    names = tuple(entry.get("variants", {}))
    judged = {
        name: verdict.judge(resolve(entry, {"variant": name} if names else {}, known.tables), known)
        for name in names or ("default",)
    }
    served: dict[str, str] = {}  # row → the variant whose plan equals it
    nearly: dict[str, str] = {}  # row → the variant that differs only in what the row does not state
    for name, judgement in judged.items():
        for found in (*judgement.rows_seen.equal, *judgement.rows_seen.near):
            if found.equal and judgement.verdict == "proven":
                served.setdefault(found.row.id, name)
            elif all(theirs in (None, evidence.NOT_STATED) for theirs, _ours in found.differs.values()):
                nearly.setdefault(found.row.id, name)
    first = resolve(entry, {}, known.tables)
    rows = [row for (model, _engine), own in known.rows.items() if model == model_key(first.model) for row in own]
    best = evidence.recommend_row(first.model, shape, rows)
    usual = first.shapes.get(shape)
    own_rows = {row for row, name in {**nearly, **served}.items() if name == usual}
    mine = evidence.recommend_row(first.model, shape, rows, {*served, *nearly}, own_rows)
    common: Plain = {"shape": shape, "profile": first.id, "better": None, "blemishes": [], "measured": {}, "losses": {}}
    if mine.row is None:
        own = first.shapes.get(shape, next(iter(judged)))
        none = (
            best.reason
            if best.row is None
            else f"Row {best.row.id} is the best ({best.reason}), but no variant matches it."
        )
        return common | {
            "variant": own,
            "verdict": "unproven",
            "row": None,
            "better": best.row.id if best.row else None,
            "settings": dict(judged[own].settings),
            "reason": f"{none} The profile's own choice is {own}.",
        }
    row = mine.row
    name = served.get(row.id) or nearly[row.id]
    reason = mine.reason
    if row.id not in served and row.lost:
        reason += f" Row {row.id} lost requests ({', '.join(row.lost)}), so it proves nothing."
    elif row.id not in served:
        reason += f" Row {row.id} does not state everything it ran with, so variant {name} is the closest known match."
    better = best.row.id if best.row is not None and best.row.id not in {*served, *nearly} else None
    if better and best.row is not None:
        reason += f" Row {better} is better ({best.reason}), but no variant of {first.id} matches it."
    return common | {
        "variant": name,
        "verdict": "proven" if row.id in served else "unproven",
        "row": row.id,
        "better": better,
        "engine": {"name": row.run.engine, "version": row.run.version, "image": row.run.image},
        "parallel": {"nodes": row.run.nodes, "tp": row.run.tp, "pp": row.run.pp, "ep": row.run.ep},
        "settings": dict(judged[name].settings),
        "measured": dict(row.measured),
        "losses": mine.losses,
        "blemishes": list(row.blemishes),
        "source": list(row.source),
        "note": row.note,
        "reason": reason,
    }


def evidence_export(
    plan: t.Mapping[str, t.Any],
    row_id: str,
    outcome: evidence.Verdict,
    measured: t.Mapping[str, float],
    source: t.Sequence[str],
    note: str = "",
) -> Plain:
    """Return a plan's outcome as a row for `knowledge/evidence`, with everything it was started with.

    Limits that the plan added are left out: a later plan may add others, and they do not make a row a different one.
    """
    for key in ("model", "engine", "parallel", "settings"):
        if not isinstance(plan, t.Mapping) or key not in plan:
            raise CollectionError(
                f"evidence_export: {key} is missing. Give the plan that was run, as launch_plan returns it."
            )
    knob = (plan.get("memory") or {}).get("knob")
    limits = plan.get("added", {}).keys() - {knob}
    own = {key: value for key, value in plan["settings"].items() if key not in limits}
    run = evidence.Configuration(
        model=plan["model"],
        engine=plan["engine"]["name"],
        version=plan["engine"]["version"],
        image=plan["engine"].get("image"),
        nodes=plan["parallel"]["nodes"],
        tp=plan["parallel"]["tp"],
        pp=plan["parallel"]["pp"],
        ep=plan["parallel"]["ep"],
        settings=own,
        environment=plan.get("environment") or {},
        patches=tuple(patch["id"] for patch in plan.get("patches") or ()),
    )
    memory = plan.get("memory") or {}
    free = memory.get("free_gib") if not memory.get("free_assumed") else None
    return evidence.row_to_export(run, row_id, outcome, measured, source, note, free)


def draft_tokens(
    algorithm: str,
    steps: int | None = None,
    tokens: int | None = None,
    topk: int | None = None,
    version: str = "",
    frozen_drafter: bool = False,
    gamma: int | None = None,
) -> Plain:
    """Return what SGLang verifies: algorithm, steps, topk, tokens, whether it was forced, and findings."""
    draft = speculation.sglang_draft(
        algorithm, steps, tokens, topk, version=version, frozen_drafter=frozen_drafter, gamma=gamma
    )
    return _dict(draft) | {"findings": [str(finding) for finding in draft.findings]}
