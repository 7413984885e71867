# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's report: its plain form (schema: docs/schema/doctor-report.json) and its lines for a terminal."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import netplan
from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import line
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import KIB_PER_GIB
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import doctor, looks, signatures
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import hardware as classes
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.diagnosis import Diagnosis, plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.diagnosis import tally as tally_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.doctor import SiteState
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.known_bad import load_known_bad
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.values import evidence_of

SCHEMA = "dgxspark.cluster/doctor-report/1"
_HEAD = ("HOST", "STATUS", "UP", "KERNEL", "DRIVER", "NIC FIRMWARE", "FREE GiB", "GPU")

Plain = dict[str, t.Any]


def seen(facts: Plain | None, read: Plain | None, fault: str | None, health: Plain | None) -> Plain:
    """Return one host's observations as `build` takes them.

    facts: a plain Node. read: the result of roce_info. fault: why reading it failed. health: the result of node_health, or
    None if this run did not get that far on the host.
    """
    if health is None:
        return {"error": "an earlier part of this run failed on it"}
    read = read or {}
    whole = health.get("health")
    return {
        # A host that answers is up, even if its facts cannot be read (no root, a full disk).
        "reached": not read.get("unreachable") and not health.get("unreachable"),
        "facts": facts,
        "error": None if facts else line(fault or read.get("msg") or "no answer"),
        "health": whole,
        "health_error": None if whole or health.get("skipped") else line(health.get("msg") or "no answer"),
    }


def build(
    plan: t.Mapping[str, t.Any],
    hosts: t.Mapping[str, t.Any],
    hardware: str,
    meta: t.Mapping[str, t.Any],
    overlays: t.Sequence[str] = (),
) -> Plain:
    """Return the report under `report`, and its lines under `table`.

    plan: of `fabric_plan`. hosts: by name, for those within the limit: `facts`, `error`, `health`, `health_error`, and
    `reached`, whether it answered.
    hardware: the class whose thresholds and limits apply. meta: `started`, `finished`, `versions`, `plan_fault`,
    `needed_gib` (from the serving plan), `pinned_gid`, `vf_options`, `netplan_path` and `foreign_stanzas` (of the roles),
    `now_s`, `clock_limit` (in MHz, that the inventory wants), `certificates` (when those end that the controller sees, see
    `doctor_certificates`). overlays: owner's knowledge folders.
    """
    evidence = evidence_of(plan, hosts, classes.thresholds(hardware, overlays), {"plan_fault": meta.get("plan_fault")})
    health, errors = doctor.health_of(hosts)
    state = SiteState(
        evidence=evidence,
        health=health,
        health_errors=errors,
        limits=classes.health(hardware, overlays),
        known_bad=load_known_bad(overlays),
        looked=looks.parts(overlays),
        table=signatures.load_table(overlays),
        needed_gib=meta.get("needed_gib"),
        pinned_gid=bool(meta.get("pinned_gid")),
        vf_options=dict(meta.get("vf_options") or {}),
        netplan_path=str(meta.get("netplan_path") or netplan.PATH),
        foreign_stanzas=str(meta.get("foreign_stanzas") or "refuse"),
        now_s=meta.get("now_s"),
        clock_limit=meta.get("clock_limit"),
        certificates=dict(meta.get("certificates") or {}),
        reached={name for name, seen in hosts.items() if seen.get("reached") or seen.get("health")},
    )
    found = doctor.examine(state)
    tally = tally_of(found)
    report: Plain = {
        "schema": SCHEMA,
        "verdict": "error" if tally["error"] else "warning" if tally["warning"] else "well",
        "headline": _headline(state, found, tally),
        "started": meta.get("started"),
        "finished": meta.get("finished"),
        "versions": dict(meta.get("versions") or {}),
        "hosts": [_host(state, name) for name in evidence.plan],
        "findings": [plain(diagnosis) for diagnosis in found],
        "not_judged": [{"host": host, "what": what} for host, what in dict.fromkeys(state.unjudged)],
    }
    return {"report": report, "table": show(report)}


def _headline(state: SiteState, found: t.Sequence[Diagnosis], tally: t.Mapping[str, int]) -> str:
    seen = sum(1 for host in state.evidence.hosts.values() if host.node)
    where = f"{signatures.count(seen, 'host')} of {len(state.evidence.plan)}"
    serious = [d for d in found if d.severity != "info"]
    if not serious:
        return f"WELL: nothing wrong was seen on {where}."
    counts = f"{signatures.count(tally['error'], 'error')}, {signatures.count(tally['warning'], 'warning')}"
    return f"{counts.upper()} on {where}: {serious[0].where}: {serious[0].symptom}"


def _host(state: SiteState, name: str) -> Plain:
    seen = state.evidence.hosts.get(name)
    health = state.health.get(name)
    gpu = health.gpus[0] if health and health.gpus else None
    return {
        "name": name,
        "status": "outside the limit" if seen is None else "seen" if seen.node else "not seen",
        "reason": seen.error if seen else None,
        "uptime_s": health.uptime_s if health else None,
        "versions": doctor.platform(state, name),
        "memory_kib": dict(health.memory) if health else {},
        "gpu": {
            "name": gpu.name,
            "clock_mhz": gpu.clock_mhz,
            "power_w": gpu.power_w,
            "temperature_c": gpu.temperature_c,
        }
        if gpu
        else None,
        "hottest_c": health.hottest_c if health else None,
        "journals": [{"name": j.name, "lines": j.lines, "error": j.error} for j in health.journals] if health else [],
    }


def show(report: Plain) -> list[str]:
    """Return a report for a terminal: plain ASCII, aligned."""
    lines = [report["headline"], "", *_aligned([_HEAD, *(_row(host) for host in report["hosts"])])]
    for finding in report["findings"]:
        lines += ["", f"{finding['severity'].upper()}: {finding['where']}: {finding['symptom']} [{finding['id']}]"]
        lines += [f"  cause: {finding['cause']}"] if finding["cause"] else []
        lines += [f"  remedy: {finding['remedy']}"] if finding["remedy"] else []
        lines += [f"  likely follows from it: {text}" for text in finding["follows"]]
        lines += [f"  source: {'; '.join(finding['source'])}"] if finding["source"] else []
    if report["not_judged"]:
        lines += ["", "NOT JUDGED:"]
        by_what: dict[str, list[str]] = {}
        for entry in report["not_judged"]:
            by_what.setdefault(entry["what"], []).append(entry["host"])
        lines += [f"  {', '.join(hosts)}: {what}" for what, hosts in by_what.items()]
    return lines


def _row(host: Plain) -> tuple[str, ...]:
    kib, gpu, versions = host["memory_kib"].get("MemAvailable"), host["gpu"], host["versions"]
    up = host["uptime_s"]
    return (
        host["name"],
        host["status"],
        "-" if up is None else f"{up / 86400:.0f} d" if up >= 172800 else f"{up / 3600:.0f} h",
        versions.get("kernel", "-"),
        versions.get("driver", "-"),
        versions.get("firmware", "-"),
        "-" if kib is None else f"{kib / KIB_PER_GIB:.1f}",
        f"{_number(gpu['clock_mhz'])} MHz, {_number(gpu['power_w'])} W, {_number(gpu['temperature_c'])} C"
        if gpu
        else "-",
    )


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"


def _aligned(rows: t.Sequence[t.Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
