# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's part of reading NCCL's logs: the knowledge base's signatures and known-bad versions, and the expectation."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Evidence
from ansible_collections.dgxspark.cluster.plugins.module_utils.signatures import Signature
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.known_bad import load_known_bad, said
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.verdict import Expected, judge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.signatures import load_signatures
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import matches

COMPONENTS = ("nccl", "torch")
_FIELDS = {field.name for field in dataclasses.fields(Signature)} - {"component", "source"}  # what a node needs


def signatures(overlays: t.Sequence[str] = ()) -> list[Signature]:
    """Return the signatures of NCCL, and PyTorch's about NCCL."""
    entries = load_signatures(overlays).values()
    return [
        from_plain(Signature, {key: value for key, value in entry.items() if key in _FIELDS})
        for entry in entries
        if entry["component"] in COMPONENTS
    ]


def report(evidence: Evidence, expected: Expected, overlays: t.Sequence[str] = ()) -> dict[str, t.Any]:
    """Return the verdict with its causes. A known-bad version comes first if nothing is proven or the run failed, else last."""
    made = judge(evidence, signatures(overlays), expected)
    bad = [pair for version in made["versions"] for pair in _known_bad(version, made, overlays)]
    stuck = made["verdict"] in ("unknown", "failed")
    first = [cause for cause, entry in bad if stuck and "shows" not in entry]
    last = [cause for cause, _entry in bad if cause not in first]
    made["findings"] = [*first, *made["findings"], *last]
    return made


def _known_bad(
    version: str, made: t.Mapping[str, t.Any], overlays: t.Sequence[str]
) -> list[tuple[dict[str, t.Any], knowledge.Entry]]:
    found = []
    seen = {finding["id"] for finding in made["findings"]}
    for entry in load_known_bad(overlays):
        if entry["component"] != "nccl" or not matches(version, entry["versions"]):
            continue
        if "shows" in entry and not seen & set(entry["shows"]):
            continue
        cure = entry.get("environment", {})
        ranks = [rank for rank in made["ranks"] if rank["version"] in (version, None)]
        if cure and ranks and all(cure.items() <= rank["settings"].items() for rank in ranks):
            continue  # every rank has the workaround
        cause = {
            "id": f"nccl.known-bad.{entry['id']}",
            "severity": entry["severity"],
            "subject": f"NCCL {version}",
            "message": said(entry),
            "remedy": entry["remedy"],
            "line": "",
        }
        found.append((cause, entry))
    return found


def refusal(made: t.Mapping[str, t.Any], expect: str) -> str | None:
    """Return why the verdict is not the expected one, with its first causes, or None if it is."""
    if expect in ("any", made["verdict"]):
        return None
    text = f"The transport is {made['verdict']!r}, not {expect!r}. {made['summary']}"
    causes = [finding for finding in made["findings"] if finding["severity"] != "info"]
    named = [f"{c['subject']}: {c['message']} {c['remedy']} [{c['id']}]".strip() for c in causes[:3]]
    return " ".join([text, *named])


def of_host(evidence: Evidence, host: str | None) -> Evidence:
    """Prefix the evidence's file names with the host, since all hosts may use the same path."""
    if host:
        evidence.sources = {f"{host}:{name}": count for name, count in evidence.sources.items()}
        for process in evidence.processes:
            process.source = f"{host}:{process.source}"
    return evidence
