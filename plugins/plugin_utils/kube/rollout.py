# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what to do about an instance, from its current and its wanted state, before anything is stopped."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import read_in
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, Node
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import networks
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.pod import STARTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import HOSTNAME, RANK, Plain, plan_of

GIB_IN_KIB = 1024 * 1024
# Tolerance on the memory that the plan counts on: the kernel's own share differs a little from boot to boot.
SLACK_GIB = 1.0
# These apply to all ranks that exist, old or new: what they may reach, and which pods they may delete.
_HELD = ("NetworkPolicy", "Role", "RoleBinding")
_SERVER = ("creationTimestamp", "generation", "managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid")


def decide(served: t.Mapping[str, t.Any], there: t.Sequence[t.Mapping[str, t.Any]], restart: bool = False) -> Plain:
    """Return what to do: `action` (none, start, replace), `old` (a plan's checksum or None), `restore` (the old ranks, for a rollback
    if the new ones do not come up), `policies` (the old ranks' network policy and RBAC, restored with them) and `stale` (to delete once
    the new ones have come up).

    served: from kube_serving. there: everything of the instance in the cluster. A group whose ranks are not all of one plan (a run
    was killed) is replaced. restart: replace it even if the plan is the same.
    """
    wanted = {made["metadata"]["name"] for made in (*served["workers"], *served["head"])}
    sets = {made["metadata"]["name"]: made for made in there if made.get("kind") == "StatefulSet"}
    stamps = {plan_of(made) for made in sets.values()}
    leaving = any(made["metadata"].get("deletionTimestamp") for made in sets.values())
    if not sets:
        action = "start"
    elif stamps == {served["plan"]} and set(sets) == wanted and not leaving and not restart:
        action = "none"
    elif stamps == {served["plan"]} and set(sets) < wanted and not leaving and not restart:
        action = "start"  # the rest of a group that a killed run began
    else:
        action = "replace"
    old = next(iter(stamps)) if len(stamps) == 1 else None
    back = restorable(there) if action == "replace" and old not in (None, served["plan"]) else []
    policies = [_applicable(made) for made in there if back and made.get("kind") in _HELD]
    return {"action": action, "old": old, "restore": back, "policies": policies, "stale": stale(served, there)}


def apart(common: t.Sequence[Plain], action: str) -> tuple[list[Plain], list[Plain]]:
    """Return what may be applied while the old ranks run, and what must wait, since it changes what they may reach and do.

    Between the two, a run may wait for long, or end, while the old ranks serve.
    """
    later = [made for made in common if action == "replace" and made["kind"] in _HELD]
    return [made for made in common if made not in later], later


def stale(served: t.Mapping[str, t.Any], there: t.Sequence[t.Mapping[str, t.Any]]) -> list[Plain]:
    """Return the ConfigMaps of other plans: unused once the new group is ready."""
    wanted = {made["metadata"]["name"] for made in served["common"] if made["kind"] == "ConfigMap"}
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {key: made["metadata"][key] for key in ("name", "namespace")},
        }
        for made in there
        if made.get("kind") == "ConfigMap" and made["metadata"]["name"] not in wanted
    ]


def restorable(there: t.Sequence[t.Mapping[str, t.Any]]) -> list[Plain]:
    """Return a group's StatefulSets in a form that can be applied again: without the server's fields, workers first."""
    found = []
    for made in there:
        if made.get("kind") != "StatefulSet":
            continue
        metadata = {key: value for key, value in made["metadata"].items() if key not in _SERVER}
        found.append(
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": _spec(made["spec"])}
        )
    return sorted(found, key=lambda made: str(made["metadata"]["name"]), reverse=True)


def kept(there: t.Sequence[t.Mapping[str, t.Any]], instance: str) -> Plain:
    """Return what an instance has in the cluster in the form of `kube_serving`, so that it can be served again unchanged.

    `head` is empty if nothing is served. there: everything of the instance, from the API.
    """
    sets = restorable(there)
    head = [made for made in sets if (made["spec"]["template"]["metadata"].get("labels") or {}).get(RANK) == "0"]
    probes = [
        each.get("startupProbe") or {} for made in head for each in made["spec"]["template"]["spec"]["containers"]
    ]
    start = max((probe.get("failureThreshold", 3) * probe.get("periodSeconds", 10) for probe in probes), default=0)
    start //= STARTS  # the probe allows this many starts
    return {
        "name": f"serve-{instance}",
        "plan": plan_of(head[0]) if head else None,
        "head": head,
        "workers": [made for made in sets if made not in head],
        "common": [_applicable(made) for made in there if made.get("kind") != "StatefulSet"],
        "nodes": {},
        "bounds": {"start_s": start},
    }


def _applicable(made: t.Mapping[str, t.Any]) -> Plain:
    """Return an object without the server's fields; a Service's own address is for the server to assign."""
    metadata = {key: value for key, value in made["metadata"].items() if key not in _SERVER}
    again = {key: value for key, value in made.items() if key not in ("metadata", "status")} | {"metadata": metadata}
    if made.get("kind") == "Service":
        own = ("clusterIP", "clusterIPs", "healthCheckNodePort")
        again["spec"] = {k: v for k, v in made["spec"].items() if k not in own or (k == "clusterIP" and v == "None")}
    return again


def _spec(spec: t.Mapping[str, t.Any]) -> Plain:
    template = spec["template"]
    metadata = {key: value for key, value in template["metadata"].items() if key not in _SERVER}
    return {**spec, "template": {**template, "metadata": metadata}}


def problems(
    served: t.Mapping[str, t.Any],
    nodes: t.Sequence[t.Mapping[str, t.Any]],
    attachments: t.Sequence[t.Mapping[str, t.Any]] = (),
) -> list[str]:
    """Return why this could not start, from what the cluster has; call it before anything is stopped."""
    ranks = [*served["workers"], *served["head"]]
    return unfit_nodes(served, nodes) + networks.missing(ranks, attachments)


def unfit_nodes(served: t.Mapping[str, t.Any], nodes: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """Return a message for each node that ranks are pinned to and that is missing, not ready or cordoned."""
    known = {(node["metadata"].get("labels") or {}).get(HOSTNAME, node["metadata"]["name"]): node for node in nodes}
    said = []
    for host, name in served["nodes"].items():
        node = known.get(name)
        if node is None:
            there = ", ".join(sorted(known)) or "none"
            said.append(
                f"{host}: there is no node {name!r} in the cluster (nodes: {there}). Join it, or set k8s_dgx_node_names."
            )
            continue
        conditions = {c["type"]: c["status"] for c in (node.get("status") or {}).get("conditions") or ()}
        if conditions.get("Ready") != "True":
            said.append(f"{host}: node {name} is not ready. See its kubelet (journalctl -u k3s-agent).")
        if (node.get("spec") or {}).get("unschedulable"):
            said.append(f"{host}: node {name} is cordoned. `kubectl uncordon {name}` lets pods in again.")
    return said


def short_of_memory(node: t.Mapping[str, t.Any], needed_gib: float | None, host: str) -> list[str]:
    """Return a message if a node (roce_info's facts) lacks the memory that the plan counts on."""
    if needed_gib is None:
        return []
    free = read_in(Node, node, f"{host}: roce_info").mem_available_kib
    if free is None:
        raise CollectionError(f"{host}: MemAvailable is not known. Gather roce_info again.")
    have = free / GIB_IN_KIB
    if have >= needed_gib - SLACK_GIB:
        return []
    return [
        f"{host}: {have:.1f} GiB are free, the plan requires {needed_gib:.1f} GiB. Stop what uses the rest (`ps axk -rss`), "
        "or plan with k8s_dgx_free_gib."
    ]
