# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An owner's choices for Kubernetes, and the names, labels and checksums that all objects share."""

from __future__ import annotations

import hashlib
import json
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain

Plain = dict[str, t.Any]

# Kubernetes' own labels.
NAME_LABEL = "app.kubernetes.io/name"
INSTANCE_LABEL = "app.kubernetes.io/instance"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
COMPONENT_LABEL = "app.kubernetes.io/component"

MANAGER = "dgxspark.cluster"  # the value of MANAGED_BY_LABEL, and the field manager of server-side apply
PLAN = f"{MANAGER}/plan"  # annotation: checksum of everything that the ranks of an instance start with
RANK = f"{MANAGER}/rank"  # label
REQUESTS = f"{MANAGER}/requests"  # annotation: how many requests its plan computes at once
MEMORY = f"{MANAGER}/memory-gib"  # annotation: memory that a rank holds once it serves, according to its plan
SERVED = f"{MANAGER}/served"  # annotation of an instance's Service: what a gateway must know (JSON: names, port, key)
PART = f"{MANAGER}/part"  # label: the part of the platform
SPARK = f"{MANAGER}/spark"  # label of a node: the platform's daemons run there (role k3s sets it, too)
VFS = f"{MANAGER}/vfs"  # label of a node: the SR-IOV device plugin has a file for it
HOSTNAME = "kubernetes.io/hostname"
GPU = "nvidia.com/gpu"
STEADY_S = 15  # for how long a new daemon must be ready before the next node gets it

_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
# Repository (with an optional registry host and port), tag, digest: distribution's reference grammar, without rare forms.
_IMAGE = re.compile(
    r"^(?:[a-zA-Z0-9.-]+(?::[0-9]+)?/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*(?::[\w][\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?$"
)
_QUANTITY = re.compile(r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|m|k|M|G|T)?$")


@dataclass(frozen=True)
class Settings:
    """An owner's choices for one instance. Bounds in seconds.

    attachment: `vf` (Multus gives each rank the instance's VFs) or `host` (host network). rdma: how /dev/infiniband
    reaches the pod, by the SR-IOV device plugin (unprivileged) or `privileged`. node_names: a host's name in Kubernetes if it
    differs from the inventory's. image: replaces the profile's, best by digest. hf_token_secret: name of a Secret with the
    key `token`, for ranks that ask the hub. api_key_secret: of one with the key `key`, which the API then requires; a new key
    has a new name (api_key.py). aliases: further names of the model at a gateway. hub_offline: ranks do not ask the hub; the
    weights are on the nodes, and read-only.
    api_ports: of API servers, which restricted ranks with VFs may reach.
    load_timeout_s: None derives it from the plan's weights. max_unavailable: of the disruption budget; None: no budget.
    """

    namespace: str = "dgx-serving"
    attachment: t.Literal["vf", "host"] = "vf"
    rdma: t.Literal["device_plugin", "privileged"] = "device_plugin"
    node_names: dict[str, str] = field(default_factory=dict)
    image: str | None = None
    image_pull: t.Literal["IfNotPresent", "Never", "Always"] = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    runtime_class: str | None = "dgxspark-nvidia"
    gpu_resource: str | None = GPU
    requests: dict[str, str] = field(default_factory=lambda: {"cpu": "1", "memory": "8Gi"})
    shm: str = "8Gi"
    cache_dir: str = "/var/lib/dgxspark/cache"
    hf_token_secret: str | None = None
    api_key_secret: str | None = None
    aliases: tuple[str, ...] = ()
    hub_offline: bool = False
    api_ports: tuple[int, ...] = (6443,)
    service_type: t.Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    service_port: int | None = None
    peers_timeout_s: int = 600
    # A Spark short of memory may stall for ten seconds and continue; taking its group down costs minutes of loading.
    lost_after_s: int = 30
    hang_after_s: int = 180
    load_timeout_s: int | None = None
    max_unavailable: int | None = 1
    priority: int = 1000000


def settings(given: t.Mapping[str, t.Any] | None) -> Settings:
    """Check an owner's choices. CollectionError names the key, the fault and what is valid."""
    chosen = from_plain(Settings, dict(given or {}), "kubernetes")
    label(chosen.namespace, "kubernetes.namespace")
    for host, node in chosen.node_names.items():
        node_name(node, f"kubernetes.node_names.{host}")
    if chosen.image is not None:
        image(chosen.image, "kubernetes.image")
    for key, value in {"shm": chosen.shm, **{f"requests.{k}": v for k, v in chosen.requests.items()}}.items():
        if not _QUANTITY.match(value):
            raise CollectionError(f"kubernetes.{key}: {value!r} is not a quantity, such as 8Gi or 500m.")
    if not chosen.api_ports or not all(0 < port < 65536 for port in chosen.api_ports):
        raise CollectionError("kubernetes.api_ports: give TCP ports of the API servers, such as [6443].")
    for key in ("peers_timeout_s", "lost_after_s", "hang_after_s", "load_timeout_s", "max_unavailable", "service_port"):
        number = getattr(chosen, key)
        if number is not None and number < (0 if key == "max_unavailable" else 1):
            raise CollectionError(f"kubernetes.{key}: {number} is too small.")
    if chosen.lost_after_s < 3:
        raise CollectionError("kubernetes.lost_after_s: give at least 3 s, or a busy node counts as lost.")
    if not chosen.cache_dir.startswith("/"):
        raise CollectionError(f"kubernetes.cache_dir: {chosen.cache_dir!r} is not an absolute path on the nodes.")
    return chosen


def label(value: str, where: str, most: int = 63) -> str:
    """Return a valid DNS label; CollectionError says what is wrong with it."""
    if len(value) > most or not _LABEL.match(value):
        raise CollectionError(
            f"{where}: {value!r} cannot be a name in Kubernetes: lower-case letters, digits and dashes, at most {most}, "
            "with a letter or digit at both ends."
        )
    return value


def node_name(value: str, where: str) -> str:
    """Return a node's name: labels with dots between them."""
    if len(value) > 253 or not all(map(_LABEL.match, value.split("."))):
        raise CollectionError(
            f"{where}: {value!r} cannot be the name of a node in Kubernetes. Give its node name in node_names, as "
            "`kubectl get nodes` shows it."
        )
    return value


def image(value: str | None, where: str) -> str:
    """Return an image's reference; CollectionError if it is not one (a profile may name a build recipe)."""
    if not value or not _IMAGE.match(value):
        what = f"{value!r} is not an image that can be pulled" if value else "no image is named"
        raise CollectionError(f"{where}: {what}. Build or choose one, and name it, best by digest, in k8s_dgx_image.")
    return value


def checksum(value: t.Any) -> str:
    """Return a short digest of plain data: equal data gives the same digest, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def plan_of(made: t.Mapping[str, t.Any]) -> str | None:
    """Return the checksum of the plan that an object of the cluster was made from; None if it has none."""
    value = (made["metadata"].get("annotations") or {}).get(PLAN)
    return str(value) if value is not None else None


def labels(instance: str | None = None, **more: str) -> dict[str, str]:
    """Return the labels of all our objects."""
    own = {MANAGED_BY_LABEL: MANAGER, "app.kubernetes.io/part-of": "dgxspark"}
    if instance is not None:
        own |= {NAME_LABEL: "dgxspark-serving", INSTANCE_LABEL: instance}
    return own | more


def rolling() -> Plain:
    """Return how a DaemonSet of the platform changes: one node at a time, and no further while a new pod is not ready, or not for long.

    Its programs have no probe, so one that crashes counts as ready until it does.
    """
    return {
        "minReadySeconds": STEADY_S,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
    }


def thing(api: str, kind: str, name: str, namespace: str | None, own: t.Mapping[str, str], **body: t.Any) -> Plain:
    """Return an object: its metadata with its body."""
    metadata: Plain = {"name": name, "labels": dict(own)}
    if namespace is not None:
        metadata["namespace"] = namespace
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **body}
