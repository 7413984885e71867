# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the ranks' nodes report: free memory before a load, and their kernel."""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import line, read_in
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    KIB_PER_GIB,
    CollectionError,
    Finding,
    Node,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import Free

SOURCE = ("MemAvailable and namespaces, as roce_info read them",)


@dataclass(frozen=True)
class Seen:
    """What the nodes reported. free_gib: by host, only credible figures; kernels: hosts by kernel release."""

    free_gib: dict[str, float] = field(default_factory=dict)
    kernels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


def _serving(node: Node) -> list[str]:
    """List ranks, and VFs that are in a live pod or on which processes have queue pairs. A single rank has no VF."""
    return [
        *node.ranks,
        *(
            f"{vf.netdev.name if vf.netdev else vf.pci} ({vf.place.pids or len(vf.users)} processes)"
            for function in node.functions
            for vf in function.vfs
            if vf.place.state == "pod" or vf.users
        ),
    ]


def look(nodes: t.Mapping[str, t.Any], hosts: t.Sequence[str], given: t.Container[str], least_idle: float) -> Seen:
    """Collect what each rank's node reports. given: hosts whose free memory the owner states, which takes precedence.

    A node that is serving a model reports what that model leaves, not what the next one finds: its figure is ignored, with a
    finding. least_idle: the least GiB an idle Spark has free; below it something else must hold memory.
    CollectionError names a host whose facts are not what `roce_info` returns.
    """
    if not isinstance(nodes, t.Mapping):
        raise CollectionError(f"cluster: nodes: a dictionary by host is needed, not {type(nodes).__name__}.")
    free: dict[str, float] = {}
    kernels: dict[str, tuple[str, ...]] = {}
    found: list[Finding] = []
    silent = []
    for host in hosts:
        if host not in nodes:
            silent += [host] if host not in given else []
            continue
        node = read_in(Node, nodes[host], f"cluster: nodes.{host}")
        if node.kernel:
            kernels[node.kernel] = (*kernels.get(node.kernel, ()), host)
        if host in given:
            continue
        if node.mem_available_kib is None:
            silent.append(host)
            continue
        available = node.mem_available_kib / KIB_PER_GIB
        busy = _serving(node)
        if busy:
            found.append(_busy(host, available, busy))
            continue
        free[host] = available
        if available < least_idle:
            found.append(_full(host, available, least_idle))
    if silent and nodes:
        found.append(_silent(silent))
    return Seen(free, kernels, tuple(found))


def _busy(host: str, available: float, busy: t.Sequence[str]) -> Finding:
    return Finding(
        "memory.node-busy",
        "warning",
        "",
        f"{host} is serving something: {', '.join(busy)}. Its {available:.1f} GiB are only what is left, so the default for "
        "an unmeasured Spark is used.",
        f"Stop it and plan again, or give what {host} has free before the load as k8s_dgx_free_gib (free_gib); for a second "
        "model next to it, also give what it holds (taken_gib).",
        ("free_gib",),
        SOURCE,
    )


def _full(host: str, available: float, least: float) -> Finding:
    return Finding(
        "memory.node-full",
        "warning",
        "",
        f"{host} has {available:.1f} GiB free, though nothing uses its VFs; an idle Spark has at least {least:g}. Something "
        "else holds its memory, and the plan uses what is left.",
        f"Find what holds memory on {host} (desktop, another server, a file in /dev/shm), stop or remove it, and plan again.",
        ("free_gib",),
        SOURCE,
    )


def _silent(hosts: t.Sequence[str]) -> Finding:
    return Finding(
        "memory.node-unmeasured",
        "info",
        "",
        f"{', '.join(hosts)} did not answer: the default for an unmeasured Spark is used there.",
        "Make them reachable, or give what they have free before the load as k8s_dgx_free_gib (free_gib).",
        ("free_gib",),
        SOURCE,
    )


def gib(cluster: t.Mapping[str, t.Any], key: str, hosts: t.Sequence[str]) -> dict[str, float]:
    """Return GiB by host from one number for all, or from a dictionary, which may omit hosts."""
    given = cluster.get(key)
    if given is None or given == "":
        return {}
    told = {h: given[h] for h in hosts if h in given} if isinstance(given, t.Mapping) else dict.fromkeys(hosts, given)
    return {host: _amount(value, key) for host, value in told.items()}


def _amount(value: t.Any, key: str) -> float:
    """Return a number of GiB; `-e NAME=110` gives it as text."""
    try:
        amount = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        amount = math.nan
    if not 0 <= amount < math.inf:
        raise CollectionError(f"cluster: {key}: {line(value)} is not a number of GiB, 0 or more.")
    return amount


def poorest(free: t.Mapping[str, float], taken: t.Mapping[str, float], hosts: t.Sequence[str], usual: Free) -> Free:
    """Return the free memory of the rank with the least, minus what other instances on its node hold.

    Hosts without a figure count as `usual`. How even it is, is known where each has one. Raises CollectionError if nothing would be left.
    """
    sure = min((free.get(host, usual.sure) - taken.get(host, 0.0) for host in hosts), default=usual.sure)
    most = min((free.get(host, usual.most) - taken.get(host, 0.0) for host in hosts), default=usual.most)
    if most <= 0:
        raise CollectionError(
            f"cluster: free_gib: nothing is free on a node once other instances have taken theirs ({sure:.1f} GiB left). "
            "Correct free_gib and taken_gib, or choose other nodes."
        )
    measured = [free[host] - taken.get(host, 0.0) for host in hosts if host in free]
    even = max(min(measured), 0.0) / max(measured) if len(measured) == len(hosts) > 1 else 1.0
    return Free(max(sure, min(most, 0.1)), most, even)
