# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From profile and cluster to settings, draft, memory, findings, evidence and the verdict. No argv here."""

from __future__ import annotations

import dataclasses
import functools
import json
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import GIB, FabricError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import (
    evidence,
    facts,
    memory,
    nodes,
    patches,
    rules,
    speculation,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.model import BYTES, Kept
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.profile import Profile
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.versions import matches, release


@dataclass(frozen=True, eq=False)
class Base:
    """All knowledge that a plan reads, loaded and compiled once. rows by model and engine."""

    rules: tuple[rules.Rule, ...]
    rows: t.Mapping[tuple[str, str], tuple[evidence.Row, ...]]
    images: t.Mapping[str, knowledge.Entry]
    known_bad: tuple[knowledge.Entry, ...]
    measurements: tuple[knowledge.Entry, ...]
    constants: t.Mapping[str, knowledge.Entry]
    patches: tuple[patches.Patch, ...]

    def constant(self, name: str, engine: str = "", version: str = "") -> float:
        """Return a number that the plan takes as given; one that has a range of versions, for this engine's."""
        entry = self.constants[name]
        ranges = entry.get("engines")
        if ranges is not None and not (engine in ranges and matches(version, ranges[engine])):
            return float(entry["otherwise"])
        return float(entry["value"])


@functools.lru_cache(maxsize=8)
def _base(overlays: tuple[str, ...], stamp: tuple[tuple[str, int], ...]) -> Base:
    rows: dict[tuple[str, str], list[evidence.Row]] = {}
    for row in evidence.load_rows(overlays):
        rows.setdefault((row.run.model, row.run.engine), []).append(row)
    return Base(
        rules=rules.load_rules(overlays),
        rows={key: tuple(value) for key, value in rows.items()},
        images={entry["image"]: entry for entry in knowledge.load("images", overlays).values()},
        known_bad=tuple(knowledge.load("versions", overlays).values()),
        measurements=tuple(knowledge.load("measurements", overlays).values()),
        constants=knowledge.load("constants", overlays),
        patches=patches.load_patches(overlays),
    )


def base(overlays: t.Sequence[str] = ()) -> Base:
    """Return the knowledge, reading files only when they or the overlays have changed."""
    folders = tuple(overlays)
    return _base(folders, knowledge.stamp(folders))


@functools.lru_cache(maxsize=64)
def assumed(known: Base, engine: str, version: str) -> memory.Assumed:
    """Return the numbers that the memory plan takes as given, for one engine version."""
    number = functools.partial(known.constant, engine=engine, version=version)
    return memory.Assumed(
        graphs=number("memory.graphs"),
        context=number("memory.context"),
        activation_copies=number("memory.activation_copies"),
        load=number("memory.load"),
        kept=Kept(int(number("memory.scale_copies")), int(number("memory.expert_rows"))),
    )


@dataclass(frozen=True)
class Judgement:
    """What was decided. added: settings that the plan put in itself; conflict: rules and rows disagree."""

    verdict: t.Literal["blocked", "unproven", "proven"]
    settings: dict[str, t.Any]
    added: dict[str, t.Any]
    draft: speculation.Draft | None
    pools: memory.Pools | None
    findings: tuple[rules.Finding, ...]
    witness: evidence.Witness
    conflict: bool
    environment: dict[str, str]
    patches: tuple[knowledge.Entry, ...] = ()


def drafted(profile: Profile) -> tuple[speculation.Draft | None, list[rules.Finding]]:
    """Work out speculation; what the engine would refuse is a finding, and the plan goes on with steps + 1."""
    settings = profile.settings
    found: list[rules.Finding] = []
    try:
        if profile.engine.name == "vllm":
            config = settings.get("speculative_config")
            if isinstance(config, str):
                config = json.loads(config)
            return (speculation.vllm_draft(config) if config else None), found
        algorithm = settings.get("speculative_algorithm")
        if not algorithm:
            return None, found
        draft = speculation.sglang_draft(
            algorithm,
            settings.get("speculative_num_steps"),
            settings.get("speculative_num_draft_tokens"),
            settings.get("speculative_eagle_topk"),
            version=profile.engine.version,
            frozen_drafter=bool(profile.drafter and profile.drafter.frozen_kv),
            gamma=profile.drafter.gamma if profile.drafter else None,
        )
    except FabricError as exc:
        if not exc.findings:
            raise
        bad = exc.findings[0]
        steps = settings.get("speculative_num_steps")
        steps = steps if isinstance(steps, int) and not isinstance(steps, bool) and steps > 0 else 1
        name = str(settings.get("speculative_algorithm", "unknown")).upper()
        draft = speculation.Draft(name, steps, 1, steps + 1, False)
        found.append(rules.Finding(bad.id, "error", (bad.subject,), bad.message, bad.remedy, ("DESIGN, draft tokens",)))
        return draft, found
    except json.JSONDecodeError as exc:
        raise FabricError(f"profile {profile.id!r}: settings.speculative_config: not JSON: {exc}") from exc
    for item in draft.findings:
        found.append(
            rules.Finding(
                item.id,
                item.severity,
                (item.subject,),
                item.message,
                item.remedy,
                ("SGLang 0.5.10 server_args.py:3079 and its successors",),
            )
        )
    return draft, found


def _measured_weights(profile: Profile, known: t.Sequence[knowledge.Entry]) -> tuple[float, str, bool] | None:
    for entry in known:
        same = (entry["model"], entry["engine"], entry["tp"], entry["pp"]) == (
            profile.model,
            profile.engine.name,
            profile.cut.tp,
            profile.cut.pp,
        )
        if same and entry.get("ep", profile.cut.ep) == profile.cut.ep:
            return entry["weights_gib"], f"measured: {entry['source'][0]}", bool(entry.get("with_head"))
    return None


def pools_of(
    profile: Profile, draft: speculation.Draft | None, free: nodes.Free | None, known: Base
) -> memory.Pools | None:
    """Plan one rank's memory; None where the model is not known. free: of the poorest rank, None: nobody measured."""
    if profile.facts is None:
        return None
    measured = _measured_weights(profile, known.measurements)
    drafter = profile.drafter
    head = bool(draft and not drafter and profile.facts.head)
    need = memory.demand(
        profile.facts,
        profile.precision,
        profile.cut,
        profile.settings,
        assumed(known, profile.engine.name, profile.engine.version),
        engine=profile.engine.name,
        head=head,
        drafter_gib=drafter.params * BYTES[drafter.precision] / profile.cut.tp / GIB if drafter and draft else 0.0,
        measured_weights=measured[:2] if measured else None,
    )
    if measured and measured[2] and head:
        # The measured figure has the head in it.
        need = dataclasses.replace(need, draft=0.0, load_peak=need.load_peak - need.draft)
    length = int(profile.settings.get("context_length") or profile.settings.get("max_model_len") or 0)
    length = length or profile.facts.native_context
    free = free or nodes.Free(known.constant("memory.free_default"), known.constant("memory.free_most"))
    if profile.engine.name == "vllm":
        return memory.vllm_pools(
            need,
            free.sure,
            known.constant("memory.total"),
            profile.settings,
            free_most=free.most,
            context_length=length,
        )
    return memory.sglang_pools(
        need,
        free.sure,
        profile.settings,
        free_most=free.most,
        speculative=draft is not None,
        draft_tokens=draft.tokens if draft else 0,
        context_length=length,
    )


def additions(profile: Profile, draft: speculation.Draft | None, pools: memory.Pools | None) -> dict[str, t.Any]:
    """Return the settings that the plan adds: the memory knob, the request limit, draft tokens, a raised context cap."""
    settings = profile.settings
    added: dict[str, t.Any] = {}
    if pools and pools.chosen_by == "planned":
        added[pools.knob] = pools.chosen
    if profile.engine.name != "sglang":
        return added
    if draft and settings.get("speculative_num_draft_tokens") != draft.tokens:
        added["speculative_num_draft_tokens"] = draft.tokens
    if (
        draft
        and "speculative_eagle_topk" not in settings
        and draft.algorithm in speculation.FORCED | {speculation.FROZEN}
    ):
        added["speculative_eagle_topk"] = (
            draft.topk
        )  # SGLang compares it with 1 unasked: steps without it end in a TypeError
    graph = settings.get("cuda_graph_max_bs")
    if "max_running_requests" not in settings and graph and not settings.get("disable_cuda_graph"):
        slots = pools.mamba_slots if pools else None
        per_request = pools.slots_per_request if pools else None
        states = slots // per_request if slots and per_request else graph
        if states > 0:
            added["max_running_requests"] = min(states, graph)
    model, length = profile.facts, settings.get("context_length")
    longer = model and length and model.position == "none" and length > model.native_context
    if longer and "json_model_override_args" not in settings:
        added["json_model_override_args"] = json.dumps({"max_position_embeddings": length})
    return added


def platform_findings(
    platform: t.Mapping[str, str], known_bad: t.Sequence[knowledge.Entry], whole: bool = True
) -> tuple[list[rules.Finding], dict[str, str]]:
    """Compare versions of NCCL, kernel, driver … with the known bad ones.

    whole: whether a kernel's command line is stated with it; where it was not read, what it could mend is a warning.
    """
    found, environment = [], {}
    for entry in known_bad:
        version = platform.get(entry["component"])
        if not version or not matches(version, entry["versions"]) or entry.get("build", "") not in version:
            continue
        if entry.get("unless") and entry["unless"] in platform.get("cmdline", ""):
            continue
        open_ = None if whole else entry.get("unless")
        severity: rules.Severity = "warning" if open_ and entry["severity"] == "error" else entry["severity"]
        environment.update(entry.get("environment", {}))
        found.append(
            rules.Finding(
                f"platform.{entry['id']}",
                "info" if entry.get("environment") else severity,
                (entry["component"],),
                entry["message"] + (f" Its command line was not read: with {open_} it is fine." if open_ else ""),
                entry["remedy"],
                tuple(entry["source"]),
            )
        )
    return found, environment


def judge(
    profile: Profile,
    known: Base,
    *,
    free: nodes.Free | None = None,
    platform: t.Mapping[str, str] | None = None,
    kernels: t.Mapping[str, t.Sequence[str]] | None = None,
    accept: t.Collection[str] = (),
    use_evidence: bool = True,
) -> Judgement:
    """Decide. accept: ids of error rules that the owner overrules (they become warnings and stay visible).

    kernels: hosts by kernel, as nodes showed it; what the owner says in platform wins.
    """
    draft, found = drafted(profile)
    pools = pools_of(profile, draft, free, known)
    added = additions(profile, draft, pools)
    if added.get("max_running_requests") and pools:
        limited = dataclasses.replace(profile, settings={**profile.settings, **added})
        pools = pools_of(limited, draft, free, known)
        if pools and pools.chosen_by == "given" and pools.knob in added:
            pools = dataclasses.replace(pools, chosen_by="planned")
    settings = {**profile.settings, **added}
    image = known.images.get(profile.engine.image or "", {})
    asked = facts.document(profile, settings, draft, pools, image.get("features", {}))
    release(profile.engine.version)
    found += rules.evaluate(rules.concerned(known.rules, profile.engine.name, profile.engine.version), asked)
    start_up = patches.needed(known.patches, profile.engine.name, profile.engine.version, asked)
    platform = platform or {}
    more, environment = platform_findings(platform, known.known_bad)
    found += more
    for kernel, hosts in () if platform.get("kernel") else (kernels or {}).items():
        shown = {"kernel": kernel, "cmdline": platform.get("cmdline", "")}
        bad_kernel, _none = platform_findings(shown, known.known_bad, whole="cmdline" in platform)
        found += [dataclasses.replace(f, message=f"{', '.join(hosts)}: {f.message}") for f in bad_kernel]
    found = [
        dataclasses.replace(f, severity="warning", message=f"Accepted by the owner: {f.message}")
        if f.severity == "error" and f.rule in accept
        else f
        for f in found
    ]
    run = evidence.Configuration(
        model=profile.model,
        engine=profile.engine.name,
        version=profile.engine.version,
        image=profile.engine.image,
        nodes=profile.nodes,
        tp=profile.cut.tp,
        pp=profile.cut.pp,
        ep=profile.cut.ep,
        settings=profile.settings,
    )
    rows = known.rows.get((profile.model, profile.engine.name), ()) if use_evidence else ()
    witness = evidence.witness(run, rows)
    errors = any(f.severity == "error" for f in found)
    stable = "stable" in witness.verdicts
    bad = bool(witness.verdicts - {"stable"})
    conflict = stable and (errors or bad)
    verdict: t.Literal["blocked", "unproven", "proven"] = "unproven"
    if errors or bad:
        verdict = "blocked"
    elif stable:
        verdict = "proven"
    return Judgement(verdict, settings, added, draft, pools, tuple(found), witness, conflict, environment, start_up)
