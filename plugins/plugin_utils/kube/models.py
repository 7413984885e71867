# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All models that a cluster serves, and which profiles would fit beside them. GiB throughout.

The planner (planner/judgement/plan.py) decides whether a profile fits the memory that is free now: there is no other memory model.
"""

from __future__ import annotations

import itertools
import math
import re
import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import read_in
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    KIB_PER_GIB,
    CollectionError,
    Node,
    PlannedHost,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import networks
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.instances import Served
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.serving import NAME_MOST
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import GPU, HOSTNAME, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import constant, profile_entries, recommend
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.nodes import gib as gib_by_host
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan

State = t.Literal["fits", "tight", "does not fit", "not known"]
FITS: tuple[State, ...] = ("fits", "tight")  # tight: it leaves less than the memory guard keeps free
STEP_GIB = 0.1  # resolution of the missing memory
APART = 1000  # between the dist_ports of two instances: engines count up from theirs
_LAST_PORT = 65535


@dataclass(frozen=True)
class Spark:
    """One host. free_gib: free memory, None if unknown, with the reason in `unseen`.

    shares: GiB of each instance that has a rank here (None: not stated), by name; coming: those that are not ready, whose share
    may not be in use yet. vfs: VF → instance; free_vfs: indices whose VF is free on every function. gpu: shares of its GPU,
    None if the node does not state them.
    """

    host: str
    total_gib: float | None
    free_gib: float | None
    floor_gib: float | None
    unseen: str = ""
    given: bool = False
    shares: dict[str, float | None] = field(default_factory=dict)
    coming: tuple[str, ...] = ()
    vfs: dict[str, str] = field(default_factory=dict)
    free_vfs: tuple[int, ...] = ()
    gpu: int | None = None
    gpu_taken: int = 0

    @property
    def room_gib(self) -> float | None:
        """GiB that the next model may count on: what is free, less what instances that still load may take."""
        coming = [self.shares[name] for name in self.coming]
        if self.free_gib is None or None in coming:
            return None
        return self.free_gib - sum(share for share in coming if share is not None)

    @property
    def short_gib(self) -> float:
        """GiB that instances which still load ask for beyond what is free."""
        return max(-(self.room_gib or 0.0), 0.0)

    @property
    def held_gib(self) -> dict[str, float]:
        """GiB of each instance that states its share; together never more than what is not free."""
        if self.total_gib is None or self.free_gib is None:
            return {}
        left = max(self.total_gib - self.free_gib, 0.0)
        held: dict[str, float] = {}
        for name, share in self.shares.items():
            held[name] = min(share or 0.0, left)
            left -= held[name]
        return held

    @property
    def other_gib(self) -> float | None:
        """GiB that are neither free nor in a stated share: the system, and whatever else runs there."""
        if self.total_gib is None or self.free_gib is None:
            return None
        return max(self.total_gib - self.free_gib - sum(self.held_gib.values()), 0.0)


@dataclass(frozen=True)
class Fit:
    """Whether one profile fits beside the served models, and the settings to start it. gib: what each of its ranks would hold.

    left_gib: what it would leave on the `hosts` entry with the least room; missing_gib: what must become free there before the
    planner accepts it. note: a caveat about a profile that fits.
    """

    profile: str
    title: str
    nodes: int
    state: State
    hosts: tuple[str, ...] = ()
    gib: float | None = None
    left_gib: float | None = None
    missing_gib: float | None = None
    reasons: tuple[str, ...] = ()
    note: str = ""
    start: Plain = field(default_factory=dict)


@dataclass(frozen=True)
class Picture:
    """The whole picture. unseen: what could not be read, and what is unknown as a result."""

    sparks: tuple[Spark, ...]
    instances: tuple[Served, ...]
    fits: tuple[Fit, ...]
    unseen: tuple[str, ...]
    without: str = ""


def picture(
    cluster: t.Mapping[str, t.Any],
    served: t.Sequence[Served],
    kube_nodes: t.Sequence[Plain] = (),
    *,
    node_names: t.Mapping[str, str] | None = None,
    floor_gib: float | None = None,
    shape: str = "",
    without: str = "",
    profiles: t.Sequence[str] | None = None,
    knowledge_dirs: t.Sequence[str] = (),
) -> Picture:
    """Return the picture.

    cluster: as for `launch_plan`; `nodes` has the current MemAvailable, and an owner's `free_gib` overrides it. kube_nodes: the
    cluster's Nodes. floor_gib: of the memory guard. shape: of the traffic; its variant is planned, as in role k8s_dgx. without: an
    instance to treat as stopped. profiles: None means all known ones. Raises CollectionError for unreadable input and for an
    instance that does not exist.
    """
    if without and without not in {each.name for each in served}:
        there = ", ".join(each.name for each in served) or "none"
        raise CollectionError(f"without: no instance {without!r} is served (served: {there}). Name one of them.")
    named = node_names or {}
    by_node = {(each["metadata"].get("labels") or {}).get(HOSTNAME): each for each in kube_nodes}
    planned = networks.hosts(cluster.get("fabric"))
    hosts = [str(host) for host in cluster.get("hosts") or ()]
    given = gib_by_host(cluster, "free_gib", hosts)
    sparks = []
    for host in hosts:
        spark = Spark(host, None, None, floor_gib)
        spark = _memory(spark, given.get(host), (cluster.get("nodes") or {}).get(host))
        spark = _of_node(spark, by_node.get(named.get(host, host)))
        spark = _without(_with_ranks(spark, served), without)
        indices = {
            vf.index: any(networks.vf_name(f, vf) in spark.vfs for f, vf in networks.rails(planned[host], vf.index))
            for function in (planned[host].functions if host in planned else ())
            for vf in function.vfs
        }
        sparks.append(replace(spark, free_vfs=tuple(index for index in sorted(indices) if not indices[index])))
    left = [each for each in served if each.name != without]
    asked = _Asked(cluster, planned, {spark.host: spark for spark in sparks}, left, shape, knowledge_dirs)
    known = profile_entries(knowledge_dirs) if profiles is None else profiles
    fits = [_fit(name, asked) for name in sorted(known)]
    order: tuple[State, ...] = (*FITS, "not known", "does not fit")
    return Picture(
        tuple(sparks),
        tuple(served),
        tuple(sorted(fits, key=lambda fit: (order.index(fit.state), fit.missing_gib or 0.0, fit.profile))),
        tuple(_unseen(sparks, served)),
        without,
    )


def _memory(spark: Spark, given: float | None, node: Plain | None) -> Spark:
    if given is not None:
        return replace(spark, free_gib=given, given=True)
    if node is None:
        return replace(spark, unseen="it did not answer")
    free = read_in(Node, node, f"cluster: nodes.{spark.host}").mem_available_kib
    return (
        replace(spark, unseen="it does not report MemAvailable")
        if free is None
        else replace(spark, free_gib=free / KIB_PER_GIB)
    )


def _of_node(spark: Spark, node: Plain | None) -> Spark:
    status = (node or {}).get("status") or {}
    total = str((status.get("capacity") or {}).get("memory", ""))
    gpu = str((status.get("allocatable") or {}).get(GPU))
    return replace(
        spark,
        total_gib=int(total.removesuffix("Ki")) / KIB_PER_GIB if re.fullmatch(r"[0-9]{1,15}Ki", total) else None,
        gpu=int(gpu) if re.fullmatch(r"[0-9]{1,4}", gpu) else None,
    )


def _with_ranks(spark: Spark, served: t.Sequence[Served]) -> Spark:
    here = [(each, rank) for each in served for rank in each.ranks if rank.host == spark.host]
    return replace(
        spark,
        shares={each.name: each.gib for each, _rank in here},
        coming=tuple(each.name for each, rank in here if not rank.ready),
        vfs={vf: each.name for each, rank in here for vf in rank.vfs or ()},
        gpu_taken=sum(rank.gpu for _each, rank in here),
    )


def _without(spark: Spark, name: str) -> Spark:
    """Return the host as it would be without an instance. Free memory that the owner stated stays as stated."""
    if name not in spark.shares:
        return spark
    share, free = spark.shares[name], spark.free_gib
    if free is not None and not spark.given and name not in spark.coming:
        free = None if share is None else free + share
    others = [each for key, each in spark.shares.items() if key != name and each is not None]
    if free is not None and spark.free_gib is not None and spark.total_gib is not None:
        # A share is a planned figure: instances may hold less. At most the total less the other shares becomes free.
        free = min(free, max(spark.total_gib - sum(others), spark.free_gib))
    return replace(
        spark,
        free_gib=free,
        unseen=spark.unseen or ("" if free is not None else f"{name} does not state its memory"),
        shares={key: value for key, value in spark.shares.items() if key != name},
        coming=tuple(each for each in spark.coming if each != name),
        vfs={vf: each for vf, each in spark.vfs.items() if each != name},
        gpu_taken=max(spark.gpu_taken - 1, 0),
    )


def _unseen(sparks: t.Sequence[Spark], served: t.Sequence[Served]) -> t.Iterator[str]:
    for spark in sparks:
        if spark.free_gib is None:
            yield f"{spark.host}: free memory is not known: {spark.unseen}."
        if spark.total_gib is None:
            yield f"{spark.host}: its node does not report its memory."
        if spark.gpu is None:
            yield f"{spark.host}: its node does not report how many shares its GPU has, so these are not judged."
    for each in served:
        if each.gib is None:
            yield f"{each.name}: does not state its memory; it will once role k8s_dgx has served it again."
        if any(rank.vfs is None for rank in each.ranks):
            yield f"{each.name}: its ConfigMap is gone, so its VFs are not known and count as free."


@dataclass(frozen=True)
class _Asked:
    cluster: t.Mapping[str, t.Any]
    planned: t.Mapping[str, PlannedHost]
    sparks: t.Mapping[str, Spark]
    served: t.Sequence[Served]
    shape: str
    dirs: t.Sequence[str]


def _fit(name: str, asked: _Asked) -> Fit:
    """Judge one profile: find places for its ranks, then ask the planner about the best one."""
    overrides: Plain = {}
    try:
        if asked.shape and (variant := recommend(name, asked.shape, asked.dirs)["variant"]) != "default":
            overrides["variant"] = variant
        bare = launch_plan(name, {}, overrides, asked.dirs)
        overrides["instance"] = _instance(name, bare["instance"], asked)
        count = int(bare["parallel"]["nodes"])
        fit = Fit(name, str(bare["title"]), count, "does not fit")
        places, why = _places(count, asked)
        if not places:
            return replace(fit, reasons=(why,))
        place = max(places, key=lambda hosts: _worth(hosts, asked))
        return _judged(replace(fit, hosts=place), overrides, asked)
    except CollectionError as exc:
        return Fit(name, name, 0, "does not fit", reasons=(f"it cannot be planned here: {exc}",))


def _places(count: int, asked: _Asked) -> tuple[list[tuple[str, ...]], str]:
    """Return all sets of hosts, in order, whose ranks reach their neighbours; and the reason if there is none."""
    if count > len(asked.sparks):
        return [], f"it needs {count} Sparks, and this run has {len(asked.sparks)}"
    wires = {host: {function.segment for function in planned.functions} for host, planned in asked.planned.items()}

    def joined(hosts: tuple[str, ...]) -> bool:
        beside = zip(hosts, (*hosts[1:], hosts[0]), strict=True)
        return count == 1 or all(wires.get(a, set()) & wires.get(b, set()) for a, b in beside)

    return [hosts for hosts in itertools.combinations(asked.sparks, count) if joined(hosts)], (
        f"no {count} Sparks are joined by cables or a switch, each to the next one"
    )


def _worth(hosts: tuple[str, ...], asked: _Asked) -> tuple[t.Any, ...]:
    """Return the sort key of a place; among equal places the first wins."""
    rooms = [asked.sparks[host].room_gib for host in hosts]
    known = [room for room in rooms if room is not None]
    full = sum(_full(asked.sparks[host]) for host in hosts)
    return -full, bool(_vf(hosts, asked)), len(known) == len(rooms), min(known, default=0.0)


def _full(spark: Spark) -> bool:
    return spark.gpu is not None and spark.gpu_taken >= spark.gpu


def _vf(hosts: t.Sequence[str], asked: _Asked) -> tuple[int, ...]:
    """Return the VF indices that are free on all of these hosts, the one for benchmarks last."""
    free = set.intersection(*(set(asked.sparks[host].free_vfs) for host in hosts))
    bench = {
        vf.index
        for host in hosts
        if host in asked.planned
        for function in asked.planned[host].functions
        for vf in function.vfs
        if vf.purpose == "bench"
    }
    return tuple(sorted(free, key=lambda index: (index in bench, index)))


def _judged(fit: Fit, overrides: Plain, asked: _Asked) -> Fit:
    """Return what prevents a profile on these hosts, or the settings to start it."""
    sparks = [asked.sparks[host] for host in fit.hosts]
    full = [spark.host for spark in sparks if _full(spark)]
    reasons = [f"no GPU share is left on {', '.join(full)}: raise k8s_platform_gpu_shares"] if full else []
    free = _vf(fit.hosts, asked)
    if fit.nodes > 1 and not free:
        reasons.append(f"no VF index is free on all of {', '.join(fit.hosts)}: raise dgxspark_fabric.vf_count")
    if fit.nodes > 1 and free:
        overrides = {**overrides, "instance": {**overrides["instance"], "vf_index": free[0]}}
    rooms = {spark.host: spark.room_gib for spark in sparks}
    dark = [host for host, room in rooms.items() if room is None]
    unknown = [f"{', '.join(dark)}: {'its' if len(dark) == 1 else 'their'} free memory is not known"] if dark else []
    poorest = min(fit.hosts, key=lambda host: rooms[host] or 0.0)
    room = math.floor((rooms[poorest] or 0.0) * 10) / 10

    def plan(gib: float) -> Plain:
        on = {**asked.cluster, "hosts": list(fit.hosts), "free_gib": gib}
        return launch_plan(fit.profile, on, overrides, asked.dirs)

    top = max(constant("memory.free_most", asked.dirs), room)
    most = plan(top)
    reasons += _errors(most)
    made = plan(room) if room > 0 and not unknown else None
    if not most["memory"]:
        unknown.append("the profile has no facts of its model, so its memory is not planned")
    elif not unknown and not _errors(most) and (made is None or _errors(made)):
        missing = _missing(plan, room, top)
        fit = replace(fit, missing_gib=missing)
        reasons.append(f"{poorest} is {missing:.1f} GiB short: {max(room, 0.0):.1f} GiB are left")
    if reasons or unknown:
        return replace(fit, state="does not fit" if reasons else "not known", reasons=(*reasons, *unknown))
    held = float(made["memory"]["used_gib"]) if made else 0.0
    start: Plain = {"k8s_dgx_model_profile": fit.profile, "k8s_dgx_free_gib": dict.fromkeys(fit.hosts, room)}
    start["k8s_dgx_overrides"] = {"instance": overrides["instance"]}
    left, floor = max(room - held, 0.0), max((spark.floor_gib or 0.0 for spark in sparks), default=0.0)
    note = f"less than the memory guard's floor of {floor:.1f} GiB" if left < floor else ""
    return replace(fit, state="tight" if note else "fits", gib=held, left_gib=left, note=note, start=start)


def _errors(plan: Plain) -> list[str]:
    return [f"{found['rule']}: {found['message']}" for found in plan["findings"] if found["severity"] == "error"]


def _missing(plan: t.Callable[[float], Plain], room: float, most: float) -> float:
    """Return the GiB beyond `room` at which the planner accepts the profile, by bisection."""
    low, high = max(room, 0.0), most
    while high - low > STEP_GIB / 2:
        middle = (low + high) / 2
        low, high = (middle, high) if _errors(plan(middle)) else (low, middle)
    return math.ceil((high - room) / STEP_GIB) * STEP_GIB


def _instance(profile: str, usual: Plain, asked: _Asked) -> Plain:
    """Return an unused name and unused ports; the profile's own ports if they are free."""
    names = {each.name for each in asked.served}
    base = "".join(letter if letter.isalnum() else "-" for letter in profile.lower())[: NAME_MOST - 3].strip("-")
    name = next(each for each in (base, *map(f"{base}-{{}}".format, range(2, len(names) + 3))) if each not in names)
    taken = {each.port for each in asked.served}
    meet = [each.dist_port for each in asked.served if each.dist_port]
    port = next((each for each in range(usual["port"], _LAST_PORT) if each not in taken), None)
    apart = range(usual["dist_port"], _LAST_PORT - APART, APART)
    meeting = next((each for each in apart if all(abs(each - other) >= APART for other in meet)), None)
    if port is None or meeting is None:
        raise CollectionError("no port is left for another instance. Set one in k8s_dgx_overrides.instance.")
    return {"name": name, "port": port, "dist_port": meeting}
