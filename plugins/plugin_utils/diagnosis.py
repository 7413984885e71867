# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the doctor says of one thing, and many hosts with the same one."""

from __future__ import annotations

import dataclasses
import typing as t
from dataclasses import dataclass

MANY = 3  # hosts of the same diagnosis that are still listed one by one
_NAMED = 8


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One finding. where: hosts, functions or VFs. follows: its likely consequences."""

    id: str
    severity: t.Literal["error", "warning", "info"]
    where: str
    symptom: str
    cause: str
    remedy: str
    source: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()


def together(found: t.Sequence[Diagnosis]) -> list[Diagnosis]:
    """Return the findings, with those about whole nodes (`node.`) that are the same on many hosts as one."""
    alike: dict[t.Any, list[Diagnosis]] = {}
    for each in found:
        alike.setdefault((each.id, each.cause, each.remedy) if each.id.startswith("node.") else id(each), []).append(
            each
        )
    merged = []
    for same in alike.values():
        if len(same) <= MANY:
            merged += same
            continue
        names = [each.where for each in same]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        symptom = f"{same[0].symptom} It is the same, or similar, on the other {len(same) - 1}."
        merged.append(dataclasses.replace(same[0], where=", ".join(names[:_NAMED]) + more, symptom=symptom))
    return merged
