# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all instances of a cluster hold, according to the API's objects: memory, ports, VFs, shares of GPUs."""

from __future__ import annotations

import collections
import json
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import status
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import (
    GPU,
    HOSTNAME,
    INSTANCE_LABEL,
    MANAGED_BY_LABEL,
    MANAGER,
    MEMORY,
    NAME_LABEL,
    RANK,
    Plain,
    labels,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.instance import dist_port_of

KINDS = (("apps/v1", "StatefulSet"), ("v1", "Pod"), ("v1", "ConfigMap"))
SELECTORS = tuple(f"{key}={labels('any')[key]}" for key in (MANAGED_BY_LABEL, NAME_LABEL))


@dataclass(frozen=True)
class Rank:
    """One rank: its host, the names of its VFs (None: unknown), whether it takes a share of the GPU, whether it is ready."""

    rank: int
    host: str
    vfs: tuple[str, ...] | None
    gpu: bool
    ready: bool


@dataclass(frozen=True)
class Served:
    """One instance, by its name (prefixed with the namespace if two instances share a name).

    gib: what each rank holds by its plan, None if the instance does not state it.
    """

    name: str
    namespace: str
    profile: str
    model: str
    gib: float | None
    port: int | None
    dist_port: int | None
    ranks: tuple[Rank, ...]


def instances(objects: t.Mapping[str, t.Sequence[Plain]], node_names: t.Mapping[str, str]) -> tuple[Served, ...]:
    """Return the instances by namespace and name. objects: by kind (see KINDS), of all namespaces, with the labels SELECTORS.

    node_names: the nodes of hosts that have another name. Raises CollectionError for a rank that the role did not make.
    """
    hosts = {node: host for host, node in node_names.items()}
    pods = {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in objects["Pod"]}
    files = {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in objects["ConfigMap"]}
    found: dict[tuple[str, str], dict[int, tuple[Rank, Plain]]] = {}
    for each in objects["StatefulSet"]:
        about = each["metadata"]
        try:
            key = about["namespace"], about["labels"][INSTANCE_LABEL]
            rank = _rank(each, hosts, pods.get((about["namespace"], f"{about['name']}-0")), files)
            found.setdefault(key, {})[rank.rank] = rank, each
        except (KeyError, IndexError, TypeError, ValueError, StopIteration) as exc:
            raise CollectionError(
                f"StatefulSet {about.get('namespace')}/{about.get('name')} has the labels of {MANAGER}, but is not a rank as the "
                f"role k8s_dgx creates it ({type(exc).__name__}: {exc}). Remove the labels, or delete it."
            ) from exc
    made = [_served(key, by_rank) for key, by_rank in sorted(found.items())]
    twice = [name for name, count in collections.Counter(each.name for each in made).items() if count > 1]
    return tuple(replace(each, name=f"{each.namespace}/{each.name}") if each.name in twice else each for each in made)


def _rank(each: Plain, hosts: t.Mapping[str, str], pod: Plain | None, files: t.Mapping[tuple[str, str], Plain]) -> Rank:
    about, spec = each["metadata"], each["spec"]["template"]["spec"]
    number, node = int(about["labels"][RANK]), str(spec["nodeSelector"][HOSTNAME])
    limits = (spec["containers"][0].get("resources") or {}).get("limits") or {}
    launch = next(each["configMap"]["name"] for each in spec["volumes"] if each["name"] == "launch")
    file = ((files.get((about["namespace"], launch)) or {}).get("data") or {}).get(f"rank{number}.json")
    told = tuple(str(rail["name"]) for rail in json.loads(file)["rails"]) if file else None
    ready = pod is not None and status.ready(pod)
    return Rank(number, hosts.get(node, node), told, GPU in limits, ready)


def _served(key: tuple[str, str], by_rank: t.Mapping[int, tuple[Rank, Plain]]) -> Served:
    first = by_rank[min(by_rank)][1]
    told = first["metadata"].get("annotations") or {}
    ports = {
        port.get("name"): int(port["containerPort"])
        for _rank, each in by_rank.values()
        for port in each["spec"]["template"]["spec"]["containers"][0].get("ports") or ()
    }
    return Served(
        name=key[1],
        namespace=key[0],
        profile=str(told.get(f"{MANAGER}/profile", "")),
        model=str(told.get(f"{MANAGER}/model", "")),
        gib=_number(told.get(MEMORY)),
        port=ports.get("http"),
        dist_port=dist_port_of(ports["supervisor"]) if "supervisor" in ports else None,
        ranks=tuple(by_rank[number][0] for number in sorted(by_rank)),
    )


def _number(told: str | None) -> float | None:
    try:
        value = float(told or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None
