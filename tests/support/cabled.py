"""Planned hosts that are joined by cables."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.dgxspark.cluster.plugins.filter.fabric_plan import FilterModule
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    PlannedHost,
    from_plain,
)

plan = FilterModule().filters()["fabric_plan"]


def cabled(topology: str, count: int, **more: t.Any) -> list[PlannedHost]:
    """The plan of hosts joined by cables, with the HCAs that each node would have reported."""
    made = plan([f"spark{n + 1}" for n in range(count)], {"topology": topology, "vf_count": 1, **more}, {})["hosts"]
    planned = []
    for plain in made.values():
        one = from_plain(PlannedHost, plain)
        functions = tuple(
            dataclasses.replace(f, vfs=tuple(dataclasses.replace(vf, hca=f"roce-{f.slot}v{vf.index}") for vf in f.vfs))
            for f in one.functions
        )
        planned.append(dataclasses.replace(one, functions=functions))
    return planned
