# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Known lines (`knowledge/signatures`) in the ranks' logs: causes with remedies, beside the verdict.

They explain a verdict but do not decide one: the log of a successful run may contain an error line.
"""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import signatures
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.collectives import given
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.values import Evidence, Plain

_STEPS = ("nccl", "pod")
_PROVEN = ("socket", "mixed", "failed")  # verdicts of the transport log that have a cause


def found(evidence: Evidence) -> list[Plain]:
    """Return each step's log findings, causes first, with the step and whether the cause is only suspected.

    A cause is suspected until the transport log confirms it, with a verdict of failure or of a network other than the
    fabric, and names this cause. Raises CollectionError for malformed readings.
    """
    made: list[Plain] = []
    for name in _STEPS:
        done = given(evidence, name) or {}
        readings = signatures.readings_of(done.get("readings") or (), f"{name}.readings")
        if readings:
            table = signatures.load_table(evidence.more.get("knowledge_dirs") or ())
            confirmed = _confirmed(done.get("transport") or {})
            made += [
                {"step": name, "suspected": not finding["benign"] and finding["id"] not in confirmed, **finding}
                for finding in signatures.findings(readings, table)
            ]
    return made


def _confirmed(transport: Plain) -> set[str]:
    if transport.get("verdict") not in _PROVEN:
        return set()
    return {finding["id"] for finding in transport.get("findings") or ()}


def shown(findings: t.Sequence[Plain]) -> list[str]:
    """Return the causes as lines for a terminal."""
    lines: list[str] = []
    for finding in findings:
        if finding["benign"] or not finding["root"]:
            continue
        first = finding["seen"][0]
        sure = "suspected" if finding["suspected"] else "confirmed"
        lines += ["", f"LOG OF {finding['step']} ({finding['severity']}, {sure}): {finding['cause']} [{finding['id']}]"]
        lines += [f"  seen in: {first['log']}:{first['first']}: {first['excerpt']}"]
        lines += [f"  remedy: {finding['remedy']}"] if finding["remedy"] else []
        lines += [f"  source: {'; '.join(finding['source'])}"]
        lines += [f"  likely follows from it: {', '.join(finding['follows'])}"] if finding["follows"] else []
    return lines
