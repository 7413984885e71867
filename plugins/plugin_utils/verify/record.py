# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the report records beside the steps: hosts with their functions and GIDs, measured bandwidth and its bands."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.bands import BandSet
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.collectives import bands_for, given, runs_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.values import Evidence, Place, Plain, Step

_MEASURED = ("nccl", "pod")


def host(evidence: Evidence, name: str) -> Plain:
    """Return a host's record: whether it was seen, its versions, its functions with their VFs and GIDs."""
    seen = evidence.hosts.get(name)
    node = seen.node if seen else None
    status = "outside the limit" if seen is None else "seen" if node else "not seen"
    functions = node.functions if node else ()
    return {
        "name": name,
        "status": status,
        "reason": seen.error if seen else None,
        "kernel": node.kernel if node else None,
        "drivers": sorted({f"{f.driver} {f.driver_version or ''}".strip() for f in functions if f.driver}),
        "firmware": sorted({f.firmware for f in functions if f.firmware}),
        "functions": _functions(evidence, name),
    }


def _functions(evidence: Evidence, name: str) -> list[Plain]:
    found = []
    for planned in evidence.plan[name].functions:
        vfs = []
        for vf in planned.vfs:
            place = Place(name, planned.slot, vf.index)
            entry, seen = evidence.gid_entries.get(place), evidence.vfs.get(place)
            vfs.append(
                {
                    "index": vf.index,
                    "purpose": vf.purpose,
                    "address": vf.address,
                    "hca": entry.hca if entry else vf.hca,
                    "gid_index": entry.index if entry else None,
                    "place": seen.place.state if seen else None,
                }
            )
        found.append(
            {
                "slot": planned.slot,
                "port": planned.port,
                "segment": planned.segment,
                "netdev": planned.netdev,
                "vfs": vfs,
            }
        )
    return found


def bandwidth(evidence: Evidence) -> list[Plain]:
    """Return the bandwidth over message size, one entry for each step and operation, its points sorted by size."""
    found = []
    for name in _MEASURED:
        runs, _whole = runs_of(given(evidence, name) or {})
        for operation in dict.fromkeys(run["operation"] for run in runs):
            points = [
                {key: run[key] for key in ("bytes", "busbw", "algbw", "time_us") if run.get(key) is not None}
                for run in runs
                if run["operation"] == operation
            ]
            found.append({"step": name, "operation": operation, "points": sorted(points, key=lambda p: p["bytes"])})
    return found


def bands(evidence: Evidence) -> list[Plain]:
    """Return this cluster's bands, by operation: the reference of the plot."""
    hosts = set((given(evidence, "nccl") or {}).get("hosts") or evidence.plan)
    chosen = {op: bands_for(evidence, op, hosts) for op in ("all_reduce", "all_gather")}
    return [_bands(operation, each) for operation, each in chosen.items() if each]


def _bands(operation: str, chosen: BandSet) -> Plain:
    return {
        "operation": operation,
        "id": chosen.id,
        "min_bytes": chosen.min_bytes,
        "bands": [
            {
                "verdict": band.verdict,
                "from": band.low,
                "to": band.high,
                "cause": band.cause,
                "message": band.message,
                "source": list(band.source),
            }
            for band in chosen.bands
        ],
        "source": list(chosen.source),
    }


def versions(evidence: Evidence) -> dict[str, str | None]:
    """Return the versions of the measuring software, such as NCCL's."""
    return {
        key: None if value is None else str(value)
        for name in _MEASURED
        for key, value in ((given(evidence, name) or {}).get("versions") or {}).items()
    }


def warnings(steps: t.Sequence[Step]) -> list[Plain]:
    """Return the results that passed but need attention."""
    return [
        {
            "id": result.cause,
            "where": result.subject,
            "message": result.message,
            "remedy": result.remedy,
            "suspected": result.suspected,
        }
        for step in steps
        for result in step.results
        if result.status == "warn"
    ]
