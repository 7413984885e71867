# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The step power: whether each node has the clock limit that the inventory asks for (role spark_power)."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.values import Evidence, Place, Plain, Result


def _how(change: Plain) -> str:
    if change["what"] == "file":
        return "is missing" if change["before"] is None else "differs"
    return f"is {change['before']}"


def was_read(evidence: Evidence) -> bool:
    """Whether the inventory asks for a limit."""
    return any(seen.power is not None or seen.power_error for seen in evidence.hosts.values())


def power(evidence: Evidence) -> list[Result]:
    """Judge what the role would change on each node."""
    results = []
    for name, seen in evidence.hosts.items():
        place = Place(name)
        if seen.power:
            differs = "; ".join(f"{change['subject']} {_how(change)}" for change in seen.power[:4])
            results.append(
                Result(
                    str(place),
                    "fail",
                    (place,),
                    f"the GPU's clock is not limited to {seen.power_mhz} MHz: {differs}.",
                    "power.limit",
                    place,
                    "Run dgxspark.cluster.site --tags power: the role spark_power sets it.",
                )
            )
        elif seen.power is not None:
            results.append(Result(str(place), "pass", (place,), f"at most {seen.power_mhz} MHz"))
        elif seen.power_error:
            results.append(
                Result(str(place), "unknown", (place,), f"the clock limit could not be read: {seen.power_error}")
            )
    return results
