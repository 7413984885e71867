# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judgement of a profile in four steps: resolve and size (sizes.py), rule, and compare. Builds no argv."""

from __future__ import annotations

import dataclasses
import functools
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Finding
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge, looks
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.known_bad import platform_findings

from ..model import memory, speculation
from ..model.model import Facts, Parallelism
from ..profile.profile import Drafter, Engine, Profile
from ..vocabulary import images
from ..vocabulary.hub_names import model_key
from . import evidence, facts, findings, patches, resolved, rules, sizes
from .document import PlanDocument
from .knowledge_base import Base
from .sizes import Settled, Sized

Verdict = t.Literal["blocked", "unproven", "proven"]
# The parts of a plan's document that depend only on the model.
_OF_FACTS = (("model",), ("quant",), ("memory",), ("context", "native"), ("context", "over_native"))


@dataclass(frozen=True)
class Judgement:
    """The decision. settings: requested and added; added: what the plan added itself; conflict: rules and rows disagree.

    offers: what the findings' remedies change, by their ids.
    """

    verdict: Verdict
    settings: dict[str, t.Any]
    added: dict[str, t.Any]
    runs: resolved.Resolved
    draft: speculation.Draft | None
    pools: memory.Pools | None
    findings: tuple[Finding, ...]
    rows_seen: evidence.MatchingRows
    conflict: bool
    environment: dict[str, str]
    patches: tuple[knowledge.Entry, ...] = ()
    offers: t.Mapping[str, rules.Offer] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Platform:
    """The nodes' software. stated: versions that the owner gives; kernels: hosts by the kernel that they reported."""

    stated: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    kernels: t.Mapping[str, t.Sequence[str]] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Ruled:
    """What rules, image and known-bad versions say. environment: the workarounds; patches: the start-up patches."""

    document: PlanDocument
    findings: tuple[Finding, ...]
    environment: dict[str, str]
    patches: tuple[knowledge.Entry, ...]
    offers: t.Mapping[str, rules.Offer]


@dataclass(frozen=True)
class Compared:
    """What measured rows say. failed: findings of equal rows that failed; flawed: of equal ones that prove nothing."""

    rows_seen: evidence.MatchingRows
    failed: tuple[Finding, ...]
    flawed: tuple[Finding, ...]


@dataclass(frozen=True)
class _Made:
    """The parts of a model that an engine's choices depend on."""

    facts: Facts | None
    precision: tuple[tuple[str, t.Any], ...]
    drafter: Drafter | None


def _made(profile: Profile) -> _Made:
    kinds = sorted(profile.precision.items())
    stored = tuple((kind, form if isinstance(form, str) else tuple(sorted(form.items()))) for kind, form in kinds)
    return _Made(profile.facts, stored, profile.drafter)


@functools.lru_cache(maxsize=4096)
def _row_run(row: evidence.Row, made: _Made, known: Base) -> evidence.Run:
    """Resolve what a row ran, with the facts of the plan's model. Cached, since there are many rows and they never change."""
    run = row.run
    measured = Profile(
        id=row.id,
        variant="",
        title="",
        model=run.model,
        proven="",
        engine=Engine(run.engine, run.version, "", run.image),
        nodes=run.nodes,
        parallelism=Parallelism(run.tp, run.pp, run.ep),
        settings=run.settings,
        environment=run.environment,
        facts=made.facts,
        precision={kind: form if isinstance(form, str) else dict(form) for kind, form in made.precision},
        drafter=made.drafter,
        revision=run.revision,
    )
    draft, _findings = sizes.drafted(measured, known.tables)
    runs = sizes.running(measured, draft, known)
    found = _run(measured, runs, {}, known)
    if row.free_gib is None:
        return found
    ran = dataclasses.replace(measured, settings=runs.settings)
    pools = (
        sizes.pools_of(ran, draft, memory.Free(row.free_gib, row.free_gib), known) if row.verdict == "crash" else None
    )
    return dataclasses.replace(found, free_gib=row.free_gib, starved=pools is not None and pools.kv <= 0)


def _run(profile: Profile, runs: resolved.Resolved, document: t.Mapping[str, t.Any], known: Base) -> evidence.Run:
    scheduled = document["patches"]["scheduled"] if document else ()
    configuration = evidence.Configuration(
        model=profile.model,
        engine=profile.engine.name,
        version=profile.engine.version,
        image=profile.engine.image,
        nodes=profile.nodes,
        tp=profile.parallelism.tp,
        pp=profile.parallelism.pp,
        ep=profile.parallelism.ep,
        settings=profile.settings,
        revision=profile.revision,
        environment=profile.environment,
        patches=tuple(one for one in scheduled if one not in known.standard.same_numerics),
    )
    parser = known.tables.nearest(profile.engine.name, profile.engine.version)
    return evidence.Run(configuration, runs, document, lambda key: resolved.flag_default(key, parser)[0])


def rule(settled: Settled, sized: Sized, platform: Platform, known: Base) -> Ruled:
    """Judge the resolved and sized configuration by the rules, the image and the known-bad versions."""
    profile, engine = settled.profile, settled.profile.engine
    image = images.find_image(known.images, engine.image)
    unpatched = facts.document(
        dataclasses.replace(profile, settings=sized.runs.settings),
        sized.runs.settings,
        settled.draft,
        sized.pools,
        image.get("features", {}),
        cache_off=known.constant("memory.cache_error", engine.name, engine.version),
    )
    unknown = _unknown(profile, sized.runs)
    start_up = patches.needed(known.patches, engine.name, engine.version, unpatched, unknown)
    document: PlanDocument = {**unpatched, "patches": facts.patch_facts([patch["id"] for patch in start_up])}
    concerned = rules.concerned(known.rules, engine.name, engine.version)
    ruling = rules.evaluate(concerned, document, unknown, sized.runs.because)
    of_platform, environment = _of_platform(platform, known)
    found = (
        *ruling.findings,
        *findings.of_unjudged(profile, ruling.unjudged),
        *findings.of_image(profile, image),
        *of_platform,
    )
    return Ruled(document, found, environment, start_up, ruling.offers)


def _unknown(profile: Profile, runs: resolved.Resolved) -> dict[tuple[str, ...], tuple[t.Any, ...]]:
    """Return the paths of the document that are not known, with their possible values."""
    unknown: dict[tuple[str, ...], tuple[t.Any, ...]] = dict(runs.unknown)
    if profile.facts is None:
        unknown |= dict.fromkeys(_OF_FACTS, ())
    if ("settings", "quantization") in unknown:
        unknown[rules.TOOL] = ("modelopt", "compressed-tensors", "none")
    return unknown


def _of_platform(platform: Platform, known: Base) -> tuple[list[Finding], dict[str, str]]:
    """Return what is known of the nodes' versions, and the variables that work around it. A stated kernel takes precedence."""
    found, environment = platform_findings(platform.stated, known.known_bad)
    for kernel, hosts in () if platform.stated.get("kernel") else platform.kernels.items():
        shown = {"kernel": kernel, "cmdline": platform.stated.get("cmdline", "")}
        bad_kernel, _none = platform_findings(shown, known.known_bad, whole="cmdline" in platform.stated)
        found += [dataclasses.replace(f, message=f"{', '.join(hosts)}: {f.message}") for f in bad_kernel]
    return [*found, *_newer({"kernel": ", ".join(platform.kernels), **platform.stated}, known)], environment


def _newer(platform: t.Mapping[str, str], known: Base) -> list[Finding]:
    """Return the finding on parts of the platform that are newer than the knowledge."""
    said = looks.newer_parts(platform, known.looked)
    text = " ".join(said.values())
    return (
        [Finding("platform.newer", "info", "", text, looks.REMEDY, tuple(said), ("knowledge/looks",))] if said else []
    )


def compare(
    settled: Settled, sized: Sized, ruled: Ruled, free: memory.Free | None, known: Base, use_evidence: bool = True
) -> Compared:
    """Compare the configuration with the measured rows of its model and engine."""
    profile = settled.profile
    rows = known.rows.get((model_key(profile.model), profile.engine.name), ()) if use_evidence else ()
    made = _made(profile)
    measured_free = free.sure if free and free.sure == free.most else None
    run = dataclasses.replace(_run(profile, sized.runs, ruled.document, known), free_gib=measured_free)
    seen = evidence.rows_seen(run, rows, known.standard, lambda row: _row_run(row, made, known))
    return Compared(seen, tuple(findings.measured(seen)), tuple(findings.flawed(seen)))


def judge(
    profile: Profile,
    known: Base,
    *,
    free: memory.Free | None = None,
    platform: Platform | None = None,
    accept: t.Collection[str] = (),
    use_evidence: bool = True,
) -> Judgement:
    """Judge a profile. accept: ids of error rules that the owner overrules (they become warnings and stay visible)."""
    settled = sizes.resolve(profile, known)
    sized = sizes.size(settled, free, known)
    ruled = rule(settled, sized, platform or Platform(), known)
    compared = compare(settled, sized, ruled, free, known, use_evidence)
    return _decided(settled, sized, ruled, compared, accept)


def _decided(settled: Settled, sized: Sized, ruled: Ruled, compared: Compared, accept: t.Collection[str]) -> Judgement:
    """Weigh what rules and rows say: a rule's error blocks, an equal stable row proves, and both together are a conflict."""
    said = (*compared.failed, *settled.findings, *ruled.findings, *compared.flawed)
    blocks = any(found.severity == "error" and found.id not in accept for found in said)
    rows = compared.rows_seen
    runs = sized.pools is None or sized.pools.kv_tokens_most > 0
    verdict: Verdict = "blocked" if blocks else "proven" if rows.proven and not compared.failed and runs else "unproven"
    return Judgement(
        verdict=verdict,
        settings={**settled.profile.settings, **sized.added},
        added=sized.added,
        runs=sized.runs,
        draft=settled.draft,
        pools=sized.pools,
        findings=tuple(_accepted(found) if found.id in accept else found for found in said),
        rows_seen=rows,
        conflict="stable" in rows.verdicts and (blocks or bool(compared.failed)),
        environment=ruled.environment,
        patches=ruled.patches,
        offers={**ruled.offers, **findings.offers(rows)} if compared.failed else ruled.offers,
    )


def _accepted(found: Finding) -> Finding:
    if found.severity != "error":
        return found
    return dataclasses.replace(found, severity="warning", message=f"Accepted by the owner: {found.message}")
