# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an instance runs, according to the API's objects: its ranks, their hosts, and where it answers."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import image
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.pod import API_KEY, CONTAINER
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import (
    INSTANCE_LABEL,
    MANAGED_BY_LABEL,
    RANK,
    REQUESTS,
    Plain,
    labels,
)

KINDS = (("apps/v1", "StatefulSet"), ("v1", "Pod"), ("v1", "Service"))


def selectors(instance: str) -> list[str]:
    """Return the label selectors of everything of an instance."""
    own = labels(instance)
    return [f"{key}={own[key]}" for key in (MANAGED_BY_LABEL, INSTANCE_LABEL)]


def running(
    instance: str, namespace: str, objects: t.Mapping[str, t.Sequence[Plain]], node_names: t.Mapping[str, str]
) -> Plain:
    """Return what runs: `ranks` (the wanted number), `hosts` (by rank), `pods` (for `nccl_transport`, to read their logs), `groups`
    (for `serving_canary`), `unreached` (why there are none), `inside` (the URL for pods), `secret` (the name of the Secret with the API
    key, None without), `requests` (how many its plan computes at once, None if not stated), and `image` (its `name`, the `digest` that
    all ranks run, the same by host as `digests`, and `problems`: ranks that differ, or a digest other than the first one).

    objects: by kind, from the API; all nodes; of ConfigMaps, the one with the images' digests. node_names: the nodes of hosts that
    have another name. Raises CollectionError if nothing runs.
    """
    sets = objects["StatefulSet"]
    if not sets:
        raise CollectionError(f"no instance {instance!r} is served in namespace {namespace}.")
    pods = _ranks(objects["Pod"])
    hosts = {node: host for host, node in node_names.items()}
    nodes = {rank: str((pods[rank].get("spec") or {}).get("nodeName") or "") for rank in sorted(pods)}
    names = [hosts.get(node, node) for node in nodes.values() if node]
    url = _url(pods.get(0), objects["Service"])
    told = str((sets[0]["metadata"].get("annotations") or {}).get(REQUESTS, ""))
    group = {"name": instance, "url": url, "hosts": names}
    return {
        "ranks": len(sets),
        "hosts": names,
        "pods": {"namespace": namespace, "label_selectors": selectors(instance), "container": CONTAINER},
        "groups": [group] if url else [],
        "requests": int(told) if re.fullmatch(r"[0-9]{1,9}", told) and int(told) else None,
        "unreached": "" if url else _unreached(instance, pods.get(0)),
        "inside": _inside(pods.get(0), objects["Service"]),
        "secret": _secret(pods.get(0)),
        "image": ran(objects, node_names),
    }


def ran(objects: t.Mapping[str, t.Sequence[Plain]], node_names: t.Mapping[str, str]) -> Plain:
    """Return which image runs (see `running`): the one that the containers were created from, not the one that was requested."""
    pods, hosts = _ranks(objects["Pod"]), {node: host for host, node in node_names.items()}
    name = next((str(pods[rank]["spec"]["containers"][0]["image"]) for rank in sorted(pods)), "")
    nodes = {rank: str((pods[rank].get("spec") or {}).get("nodeName") or "") for rank in sorted(pods)}
    found = {hosts.get(node, node): image.digest_of(pods[rank]) for rank, node in nodes.items()}
    digests = {host: digest for host, digest in found.items() if digest}
    # A node without a rank does not count.
    theirs = [each for node in nodes.values() if (each := image.find(objects.get("Node", ()), node))]
    same = image.alike(theirs)
    judged = image.judge(name, digests, image.record(objects["ConfigMap"]), accept=False, same=same)
    return {"name": name, "digest": judged["digest"], "digests": digests, "problems": judged["problems"]}


def _ranks(pods: t.Sequence[Plain]) -> dict[int, Plain]:
    return {int(pod["metadata"]["labels"][RANK]): pod for pod in pods if _is_rank(pod)}


def _is_rank(pod: Plain) -> bool:
    # A pod that is being deleted exists beside its successor.
    metadata = pod["metadata"]
    return RANK in (metadata.get("labels") or {}) and not metadata.get("deletionTimestamp")


def _url(head: Plain | None, services: t.Sequence[Plain]) -> str | None:
    """Return the head's URL from outside the cluster, None if it has none."""
    address = (head or {}).get("status", {}).get("hostIP")
    if head and address and (head.get("spec") or {}).get("hostNetwork"):
        ports = [port for each in head["spec"]["containers"] for port in each.get("ports") or ()]
        number = next((port["containerPort"] for port in ports if port.get("name") == "http"), None)
        return f"http://{_bracketed(address)}:{number}/v1" if number else None
    for service in services:
        spec = service.get("spec") or {}
        port: Plain = next((port for port in spec.get("ports") or () if port.get("name") == "http"), {})
        entries = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or [{}]
        outside = entries[0].get("ip") or entries[0].get("hostname")
        if port and outside:
            return f"http://{_bracketed(outside)}:{port['port']}/v1"
        if port.get("nodePort") and address:
            return f"http://{_bracketed(address)}:{port['nodePort']}/v1"
    return None


def _inside(head: Plain | None, services: t.Sequence[Plain]) -> str | None:
    """Return the head's URL for pods, with the Service's address, so that no request needs a DNS lookup."""
    for service in services if head else ():
        spec, metadata = service.get("spec") or {}, service["metadata"]
        port = next((port["port"] for port in spec.get("ports") or () if port.get("name") == "http"), None)
        if port:
            address = _bracketed(str(spec.get("clusterIP") or f"{metadata['name']}.{metadata['namespace']}.svc"))
            return f"http://{address}:{port}/v1"
    return None


def _secret(head: Plain | None) -> str | None:
    """Return the name of the Secret with the API key of the head; None without a key."""
    volumes = ((head or {}).get("spec") or {}).get("volumes") or ()
    return next((str(each["secret"]["secretName"]) for each in volumes if each.get("name") == API_KEY), None)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _unreached(instance: str, head: Plain | None) -> str:
    if head is None:
        return f"instance {instance!r} has no running head"
    return (
        f"instance {instance!r} can be reached only within the cluster (its Service is a ClusterIP): say in "
        "dgxspark_verify_groups where to reach it, or set k8s_dgx_serving.service_type"
    )
