# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Diagnose a running cluster from its nodes' facts: symptom, cause, remedy. Sends no test traffic.

Verify judges what facts alone decide (links, VFs, GIDs), the signatures interpret journal lines, and known-bad versions
come from the list that the serving plan uses.
"""

from __future__ import annotations

import typing as t
from collections import defaultdict
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import netplan
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.gids import common_index
from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import read_in
from ansible_collections.dgxspark.cluster.plugins.module_utils.health import CLOCK_UNIT, Health
from ansible_collections.dgxspark.cluster.plugins.module_utils.signatures import Reading
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    SEVERITIES,
    CollectionError,
    to_plain,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import (
    doctor_certificates,
    doctor_hardware,
    known_bad,
    looks,
    signatures,
    unreached,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.diagnosis import Diagnosis, period, together, why
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.changes import changes
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.knowledge import Entry
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify import links
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.values import Evidence, Step
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.verdict import causes

EARLIER = "earlier boot"
CLOCK_S = 600.0  # how far a node's clock may be off: a slow run reads it that much earlier
_MAKE = "Run dgxspark.cluster.site --tags fabric."


@dataclass(frozen=True)
class SiteState:
    """The doctor's input. health: by host, what `node_health` read; health_errors: why it could not."""

    evidence: Evidence
    health: t.Mapping[str, Health]
    health_errors: t.Mapping[str, str]
    limits: Entry
    known_bad: t.Sequence[Entry]
    looked: Entry  # the last look at the platform's parts
    table: signatures.Table
    needed_gib: float | None = None  # free memory that the serving plan needs before loading
    pinned_gid: bool = False
    vf_options: t.Mapping[str, t.Any] = field(default_factory=dict)  # of the role sriov_roce, if not its defaults
    netplan_path: str = netplan.PATH
    foreign_stanzas: str = "refuse"
    now_s: float | None = None  # the controller's clock when the nodes had been read
    reached: t.Container[str] = ()  # hosts that answered, even if their facts could not be read
    clock_limit: int | None = None  # in MHz, that the inventory wants (role spark_power)
    certificates: t.Mapping[str, float] = field(
        default_factory=dict
    )  # when those end that the controller sees, by what they are of
    unjudged: list[tuple[str, str]] = field(default_factory=list)


def health_of(hosts: t.Mapping[str, t.Any]) -> tuple[dict[str, Health], dict[str, str]]:
    """Return the hosts' `health`, and their `health_error`. CollectionError for malformed input."""
    health = {
        name: read_in(Health, seen["health"], f"hosts.{name}.health")
        for name, seen in hosts.items()
        if seen.get("health")
    }
    return health, {name: str(seen["health_error"]) for name, seen in hosts.items() if seen.get("health_error")}


def examine(state: SiteState) -> list[Diagnosis]:
    """Return all findings, the most severe first; equal ones in the order of the checks, lowest layer first."""
    parts = (
        _nodes,
        _services,
        _clocks,
        _gate,
        _drift,
        _gids,
        _versions,
        _reboots,
        _known_bad,
        _newer,
        doctor_hardware.memory,
        doctor_hardware.fragments,
        doctor_hardware.gpus,
        doctor_hardware.clock_limits,
        doctor_hardware.pcie,
        doctor_hardware.firmware,
        doctor_certificates.ends,
        _journals,
    )
    found = [diagnosis for part in parts for diagnosis in part(state)]
    return sorted(together(found), key=lambda diagnosis: SEVERITIES.index(diagnosis.severity))


def _nodes(state: SiteState) -> t.Iterator[Diagnosis]:
    for name in state.evidence.plan:
        absent = state.evidence.not_here(name)
        if absent and absent[1] and name in state.reached:
            yield Diagnosis(
                "node.refused",
                "error",
                name,
                f"it answers, but {absent[0]}.",
                "The node is up, but reading its fabric failed there, as happens without root.",
                "Give Ansible root on it (become: true; -K where sudo asks for a password), or fix what the error names.",
            )
        elif absent and absent[1]:
            known = unreached.why(absent[0])
            ranks = ("Every model that has a rank there is down, though its health page may say otherwise.",)
            yield Diagnosis(
                known.id, "error", name, f"{absent[0]}.", known.cause, known.remedy, follows=ranks if known.off else ()
            )
        elif name in state.health_errors:
            message = state.health_errors[name]
            cause = "The module node_health failed there."
            yield Diagnosis(
                "node.unread", "warning", name, f"its health could not be read: {message}", cause, "See why."
            )


def _services(state: SiteState) -> t.Iterator[Diagnosis]:
    for name in state.evidence.plan:
        node = state.evidence.node(name)
        if node is None:
            continue
        for unit in node.failed:
            if unit == CLOCK_UNIT.rpartition("/")[2]:
                continue  # doctor_hardware.clock_limits tells
            yield Diagnosis(
                "unit.failed",
                "warning",
                name,
                f"the unit {unit} has failed.",
                "It gives the fabric's interfaces their settings at boot, or when a pod returns a VF, and could not.",
                f"`journalctl -u {unit}` says why. {_MAKE} That does its work, and lets systemd forget the failure.",
            )
        if node.netplan.service not in (None, "active", "activating", "reloading", "unknown"):
            service = (
                "NetworkManager.service" if node.netplan.renderer == "NetworkManager" else "systemd-networkd.service"
            )
            masked = node.netplan.service == "masked"
            yield Diagnosis(
                "netplan.service",
                "error",
                name,
                f"{service}, which is to configure what netplan's files say, is {node.netplan.service}.",
                "Somebody stopped, disabled or masked it, or it failed. Addresses and MTU are not set without it.",
                f"`systemctl {'unmask' if masked else 'status'} {service}`, then `systemctl enable --now {service}`.",
            )


def _clocks(state: SiteState) -> t.Iterator[Diagnosis]:
    for name, health in state.health.items():
        if health.time_s is None or state.now_s is None or abs(health.time_s - state.now_s) <= CLOCK_S:
            continue
        off = health.time_s - state.now_s
        yield Diagnosis(
            "clock.wrong",
            "warning",
            name,
            f"its clock is {period(abs(off))} {'ahead of' if off > 0 else 'behind'} this controller's.",
            "It does not get the time from the network (or this controller does not). Certificates, tokens and journals depend on it.",
            "`timedatectl` shows whether it is synchronised; `timedatectl set-ntp true` turns that on.",
        )


def _steps(state: SiteState) -> list[Step]:
    """Return the verify steps that need facts only."""
    return [Step(judge.__name__, "", True, tuple(judge(state.evidence))) for judge in (links.link, links.gid)]


def _gate(state: SiteState) -> t.Iterator[Diagnosis]:
    for cause in causes(_steps(state)):
        yield Diagnosis(
            cause.id,
            "error",
            cause.where,
            cause.message,
            why(cause.id),
            cause.remedy,
            follows=tuple(cause.consequences[:8]),
        )


def _drift(state: SiteState) -> t.Iterator[Diagnosis]:
    told = {str(r.blame) for step in _steps(state) for r in step.results if r.status == "fail"}
    for name, host in state.evidence.plan.items():
        node = state.evidence.node(name)
        if node is None:
            continue
        if node.changing or node.netplan.pending:
            yield Diagnosis(
                "plan.changing",
                "warning",
                name,
                f"a run is changing its fabric right now, or was cut off a moment ago ({node.changing or 'an unconfirmed change'}).",
                "The node itself rolls back a change of netplan's files that is not confirmed.",
                "Wait for that run to end, or two minutes; then look again.",
            )
            continue
        try:
            there = (to_plain(host), to_plain(node), state.vf_options)
            differs = changes(*there, path=state.netplan_path, foreign_stanzas=state.foreign_stanzas)
            # Skip what verify has already reported.
            every = [change for change in differs["changes"] if change.what != "state"]
            found = [change for change in every if f"{name} {change.subject.split(' ')[0]}" not in told]
            refused = [
                f
                for f in differs["findings"]
                if f.id.startswith(("netplan.", "sriov.record")) and f.id != "netplan.masked"
            ]
        except CollectionError as exc:
            state.unjudged.append((name, f"whether it is as planned: {exc}"))
            continue
        for finding in refused:
            yield Diagnosis(
                finding.id,
                "error" if finding.severity == "error" else "warning",
                f"{name} {finding.subject}",
                finding.message,
                "dgxspark.cluster.site refuses to change the node because of it."
                if finding.severity == "error"
                else "See the remedy.",
                finding.remedy,
            )
        if any(finding.severity == "error" for finding in refused):
            continue  # what site.yml would change helps nobody until then
        if found:
            shown = "; ".join(f"{c.subject}: {c.what} {_short(c.before)} -> {_short(c.after)}" for c in found[:6])
            more = f" and {len(found) - 6} more" if len(found) > 6 else ""
            yield Diagnosis(
                "plan.drift",
                "warning",
                name,
                f"dgxspark.cluster.site would change {signatures.count(len(found), 'thing')} there: {shown}{more}.",
                "It was changed by hand, an update or a pod, or the inventory has changed since.",
                f"Look at it with dgxspark.cluster.plan. {_MAKE}",
            )


def _short(value: t.Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 40 and "\n" not in text else f"({len(text)} characters)"


def _gids(state: SiteState) -> t.Iterator[Diagnosis]:
    entries = {name: found for name, (found, _findings) in state.evidence.gids.items() if found}
    if len(entries) < 2:
        return
    common = common_index(entries)
    if not common.fits:
        yield Diagnosis(
            "gid.index-differs",
            "error" if state.pinned_gid else "info",
            ", ".join(entries),
            common.message,
            "The index is a place in a table that follows addresses and link events; it need not be the same.",
            "Leave NCCL_IB_GID_INDEX unset (NCCL from 2.21 on finds it by itself); only a pinned one fails.",
            source=("NVIDIA/nccl#1333",),
        )


def platform(state: SiteState, name: str) -> dict[str, str]:
    """Return a host's versions by component, including those of its fabric functions."""
    return known_bad.node_versions(state.health.get(name), state.evidence.node(name))


def _versions(state: SiteState) -> t.Iterator[Diagnosis]:
    by_component: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name in state.evidence.hosts:
        for component, version in platform(state, name).items():
            by_component[component][version].append(name)
    for component, versions in sorted(by_component.items()):
        if component == "product" or len(versions) < 2:
            continue
        usual, *others = sorted(versions, key=lambda version: (-len(versions[version]), version))
        told = "; ".join(f"{version} on {', '.join(versions[version])}" for version in (usual, *others))
        yield Diagnosis(
            f"versions.{component}",
            "warning",
            ", ".join(host for version in others for host in versions[version]),
            f"{component} differs between nodes: {told}.",
            "The nodes were updated at different times.",
            "Bring all nodes to one version, and restart them for a kernel, driver or firmware.",
        )


def _reboots(state: SiteState) -> t.Iterator[Diagnosis]:
    for name, health in state.health.items():
        if health.reboot_for is None:
            continue
        names = ", ".join(health.reboot_for)
        yield Diagnosis(
            "node.reboot",
            "warning",
            name,
            f"it is to be restarted{f' for {names}' if names else ''}.",
            "Packages were updated since its last boot. Until then it runs the old ones, and the next power cut decides when the new "
            "ones are tried.",
            "Restart it when its models may stop, and run dgxspark.cluster.verify.",
        )


def _known_bad(state: SiteState) -> t.Iterator[Diagnosis]:
    hosts: dict[str, list[str]] = defaultdict(list)
    found: dict[str, t.Any] = {}
    for name in state.evidence.hosts:
        node, health = state.evidence.node(name), state.health.get(name)
        for finding, version in known_bad.node_findings(health, node, state.known_bad):
            hosts[finding.id].append(name)
            found[finding.id] = (finding, version)
    for key, (finding, version) in found.items():
        yield Diagnosis(
            key,
            finding.severity,
            ", ".join(hosts[key]),
            f"{finding.names[0]} {version} is on the list of known-bad versions.",
            finding.message,
            finding.remedy,
            source=tuple(map(str, finding.source)),
        )


def _newer(state: SiteState) -> t.Iterator[Diagnosis]:
    hosts: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name in state.evidence.hosts:
        for component, said in looks.newer_parts(platform(state, name), state.looked).items():
            hosts[component][said].append(name)
    if hosts:
        where = dict.fromkeys(name for said in hosts.values() for names in said.values() for name in names)
        text = " ".join(said for each in hosts.values() for said in each)
        yield Diagnosis("versions.newer", "info", ", ".join(where), text, "", looks.REMEDY, source=("knowledge/looks",))


def _journals(state: SiteState) -> t.Iterator[Diagnosis]:
    readings = []
    for name, health in state.health.items():
        for journal in health.journals:
            if journal.error and EARLIER not in journal.name:
                state.unjudged.append((name, f"the journal ({journal.name}): {journal.error}"))
            readings.append(Reading(f"{name}: {journal.name}", journal.lines, journal.hits, journal.error))
    found = signatures.findings(readings, state.table)
    causes_of = {finding["id"]: finding["cause"] for finding in found}
    for finding in found:
        if finding["benign"] or not finding["root"]:
            continue
        seen = finding["seen"]
        old = all(EARLIER in place["log"] for place in seen)
        times = sum(place["count"] for place in seen)
        more = f" ({signatures.count(times, 'line')})" if times > 1 else ""
        yield Diagnosis(
            finding["id"],
            "warning" if old and finding["severity"] == "error" else finding["severity"],
            ", ".join(dict.fromkeys(place["log"].split(":")[0] for place in seen)),
            f"{seen[0]['log'].split(': ', 1)[1]}{more}: {seen[0]['excerpt']}",
            finding["cause"],
            finding["remedy"],
            source=tuple(finding["source"]),
            follows=tuple(f"{causes_of[name]} [{name}]" for name in finding["follows"]),
        )
