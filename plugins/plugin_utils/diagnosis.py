# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the doctor says of one thing, and many hosts with the same one."""

from __future__ import annotations

import dataclasses
import typing as t
from collections import Counter
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import SEVERITIES
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import signatures

MANY = 3  # hosts of the same diagnosis that are still listed one by one
_NAMED = 8

# Why a cluster that once worked fails verify's checks, by prefix of the cause's id. Longer prefixes come first.
_WHY = {
    "function.": "The ConnectX-7 leaves the PCI bus without a cable, and returns when one is plugged in.",
    "link.down": "The cable, its plug, the switch port, or the node at the other end.",
    "link.speed": "The cable or the switch port supports less, or they negotiated less.",
    "link.address": "It was added by hand, or a configuration was copied from another node.",
    "link.route": "Somebody, or a program that manages routes, deleted it.",
    "link.mtu": "It was changed since: a pod returned the VF, a firmware update reset it, or it was changed by hand.",
    "vf.stranded": "A pod was force-deleted, and its dead network namespace kept the VF.",
    "vf.unbound": "Its driver was unbound, or failed.",
    "vf.mac": "It was recreated without the settings, for example by another tool.",
    "vf.": "The VFs were not created after the last boot, or their number was changed.",
    "gid.no-ipv4": "The VF lost its address, netplan was not applied after the VF came back from a pod, or a file in "
    "/etc/systemd/network takes precedence over netplan's (`networkctl status INTERFACE` names the file in use).",
    "gid.": "The GID table follows addresses and link events, and did not follow this one.",
    "rdma.exclusive": "Somebody set it (rdma system set netns exclusive, or ib_core's option netns_mode=0).",
    "plan.": "The inventory does not match the nodes.",
}


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


def tally(found: t.Sequence[Diagnosis]) -> dict[str, int]:
    """Count by severity."""
    counted = Counter(diagnosis.severity for diagnosis in found)
    return {severity: counted[t.cast(t.Any, severity)] for severity in SEVERITIES}


def plain(diagnosis: Diagnosis) -> dict[str, t.Any]:
    """Return the diagnosis in plain form."""
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in dataclasses.asdict(diagnosis).items()
    }


def why(cause: str) -> str:
    """Return why a cluster that once worked fails a check with this cause, if that is known."""
    return next((text for prefix, text in _WHY.items() if cause.startswith(prefix)), "")


def period(seconds: float) -> str:
    """Return a time in its largest unit."""
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            return signatures.count(round(seconds / size), unit)
    return signatures.count(round(seconds), "second")
