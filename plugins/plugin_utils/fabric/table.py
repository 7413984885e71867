# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan as text for a terminal: aligned columns, no colours, one block per host."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

_HEAD = ("function", "VF", "interface", "MAC", "IPv4", "MTU", "segment/purpose", "HCA")
_UNSEEN = "?"

Plain = t.Mapping[str, t.Any]


def table(
    plan: Plain,
    changes: t.Mapping[str, t.Sequence[Plain]] | None = None,
    findings: t.Mapping[str, t.Sequence[Plain]] | None = None,
) -> list[str]:
    """Return the plan as lines.

    changes: what would change, by host; a host missing from it was not reached. If None, the lines do not mention
    changes. findings: reasons not to apply them, by host. A question mark stands for what only the node can tell.
    """
    if not isinstance(plan, t.Mapping) or "hosts" not in plan:
        raise CollectionError("A plan is needed, as the filter dgxspark.cluster.fabric_plan returns it.")
    hosts: t.Mapping[str, Plain] = plan["hosts"]
    rows = {name: _rows(host) for name, host in hosts.items()}
    cells = [_HEAD, *(row for listed in rows.values() for row in listed)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEAD))]
    lines = head(plan)
    for name, host in hosts.items():
        lines += ["", f"{name} (index {host['index']}{'' if host['detected'] else ', from inventory alone'})"]
        if rows[name]:
            lines += [_line(row, widths) for row in (_HEAD, *rows[name])]
        if changes is not None:
            lines += _changes(changes.get(name))
        for finding in (findings or {}).get(name, ()):
            lines.append(
                f"  {finding['severity']}: {finding['subject']}: {finding['message']} {finding['remedy']}".rstrip()
            )
    return lines


def head(plan: Plain) -> list[str]:
    """Return what the plan is of, and its notes."""
    counted = f"{_count(len(plan['hosts']), 'host')}, {_count(len(plan['pairs']), 'pair')}"
    return [f"Fabric: {plan['topology']}, {counted}", *(f"Note: {note}" for note in plan["notes"])]


def refusals(findings: t.Mapping[str, t.Sequence[Plain]]) -> list[str]:
    """Return the errors among the findings (by host) as sentences: each once, after the hosts that have it."""
    hosts: dict[str, list[str]] = {}
    for host, found in findings.items():
        for each in found:
            if each["severity"] == "error":
                said = f"{each['subject']}: {each['message']} {each['remedy']}".rstrip()
                hosts.setdefault(said, []).append(host)
    return [f"{', '.join(dict.fromkeys(named))}: {said}" for said, named in hosts.items()]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _rows(host: Plain) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for function in host["functions"]:
        mtu = str(function["mtu"])
        rows.append(
            (
                function["slot"],
                "",
                function["netdev"],
                function["mac"] or _UNSEEN,
                "",
                mtu,
                function["segment"],
                function["hca"] or _UNSEEN,
            )
        )
        rows += [
            (
                "",
                str(vf["index"]),
                vf["netdev"] or _UNSEEN,
                vf["mac"],
                f"{vf['address']}/{vf['prefix']}",
                str(vf["mtu"]),
                vf["purpose"],
                vf["hca"] or _UNSEEN,
            )
            for vf in function["vfs"]
        ]
    return rows


def _line(row: t.Sequence[str], widths: t.Sequence[int]) -> str:
    return "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _changes(changes: t.Sequence[Plain] | None) -> list[str]:
    if changes is None:
        return ["  would change: not known, the host was not reached"]
    if not changes:
        return ["  would change: nothing"]
    return [
        "  would change:",
        *(f"    {c['subject']}: {c['what']} {_value(c['before'])} -> {_value(c['after'])}" for c in changes),
    ]


def _value(value: t.Any) -> str:
    if value is None:
        return "none"
    text = str(value)
    lines = text.count("\n") + 1
    return text if lines == 1 else f"({lines} lines)"
