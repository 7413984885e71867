# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one pod template for every rank of every instance, whatever the engine and the attachment."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.load_guard import FOLDER
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.rank import auth_proxy
from ansible_collections.dgxspark.cluster.plugins.module_utils.system import RANK_PROGRAMS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import networks
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import HOSTNAME, Plain, Settings

PROGRAMS = RANK_PROGRAMS  # mount point of the ConfigMap
CACHE = "/cache"
TOKEN = "/run/secrets/dgxspark"
KEY = "/run/secrets/dgxspark-api"
API_KEY = "api-key"  # the volume that contains it
CONTAINER = "rank"
PERIOD_S = 5
# The kubelet carries the failure count of a container that exited by itself over to the next one (pkg/kubelet/prober/worker.go: only
# its own restarts reset resultRun), so the limit covers several starts: a load must not fail because of earlier ones.
STARTS = 4
LIVENESS_FAILURES = 6
# What engines and their compilers keep between starts. Instances share weights, which are read-only if ranks do not ask the hub;
# kernels and a model's own code are executed, so each instance has its own folder for them.
CACHES = {
    "HF_HOME": f"{CACHE}/huggingface",
    "TRITON_CACHE_DIR": f"{CACHE}/kernels/triton",
    "FLASHINFER_WORKSPACE_BASE": f"{CACHE}/kernels/flashinfer",
    "TORCHINDUCTOR_CACHE_DIR": f"{CACHE}/kernels/inductor",
    "TVM_FFI_CACHE_DIR": f"{CACHE}/kernels/tvm-ffi",
    "CUDA_CACHE_PATH": f"{CACHE}/kernels/cuda",
    "VLLM_CACHE_ROOT": f"{CACHE}/kernels/vllm",
    "HF_MODULES_CACHE": f"{CACHE}/kernels/modules",
}


@dataclass(frozen=True)
class Rail:
    """One VF of a rank: its name, the interface inside the pod, planned address, and attachment (None: host network)."""

    name: str
    interface: str
    address: str
    prefix: int
    mtu: int
    hca: str | None
    attachment: str | None = None


@dataclass(frozen=True)
class Member:
    """One rank, ready to become a manifest."""

    rank: int
    host: str
    node: str
    env: dict[str, str]
    argv: tuple[str, ...]
    rails: tuple[Rail, ...]

    @property
    def attached(self) -> bool:
        """Whether VFs are moved into its pod."""
        return any(rail.attachment for rail in self.rails)


@dataclass(frozen=True)
class Group:
    """What the ranks of an instance share. start_s: for the whole start; until then no rank is restarted."""

    instance: str
    image: str
    launch: str
    port: int
    supervisor: int
    kernels: str
    start_s: int
    settings: Settings


def _probe(path: str, port: int, **more: int) -> Plain:
    # The supervisor answers on every interface; the kubelet asks at the pod's own address.
    return {"httpGet": {"path": path, "port": port}, "periodSeconds": PERIOD_S, "timeoutSeconds": 5, **more}


def _networks(member: Member, namespace: str) -> Plain:
    asked = [
        {
            "name": rail.attachment,
            "namespace": namespace,
            "interface": rail.interface,
            "ips": [f"{rail.address}/{rail.prefix}"],
        }
        for rail in member.rails
        if rail.attachment
    ]
    return {networks.NETWORKS: json.dumps(asked)} if asked else {}


def _volumes(member: Member, group: Group) -> tuple[list[Plain], list[Plain]]:
    """Return volumes and their mounts."""
    chosen = group.settings

    def node_folder(name: str, path: str) -> Plain:
        return {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}

    volumes: list[Plain] = [
        {"name": "launch", "configMap": {"name": group.launch, "defaultMode": 0o555}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": chosen.shm}},
        node_folder("huggingface", f"{chosen.cache_dir}/huggingface"),
        node_folder("kernels", f"{chosen.cache_dir}/kernels/{group.instance}/{group.kernels}"),
        # If the node has a memory guard, its socket is in this folder.
        node_folder("load-guard", FOLDER),
    ]
    mounts: list[Plain] = [
        {"name": "launch", "mountPath": PROGRAMS, "readOnly": True},
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "huggingface", "mountPath": CACHES["HF_HOME"]} | ({"readOnly": True} if chosen.hub_offline else {}),
        {"name": "kernels", "mountPath": f"{CACHE}/kernels"},
        {"name": "load-guard", "mountPath": FOLDER, "readOnly": True},
    ]
    if wants_token(chosen):
        # A file that only root can read: in the environment every child and /proc would show it.
        items = [{"key": "token", "path": "token", "mode": 0o400}]
        volumes.append({"name": "hf-token", "secret": {"secretName": chosen.hf_token_secret, "items": items}})
        mounts.append({"name": "hf-token", "mountPath": TOKEN, "readOnly": True})
    if has_auth_proxy(member, chosen):
        items = [{"key": "key", "path": "key", "mode": 0o400}]
        volumes.append({"name": API_KEY, "secret": {"secretName": chosen.api_key_secret, "items": items}})
        mounts.append({"name": API_KEY, "mountPath": KEY, "readOnly": True})
    return volumes, mounts


def has_auth_proxy(member: Member, chosen: Settings) -> bool:
    """Whether this rank has an API that requires a key."""
    return member.rank == 0 and chosen.api_key_secret is not None


def wants_token(chosen: Settings) -> bool:
    """Whether ranks get the hub's token: only if they download for themselves."""
    return bool(chosen.hf_token_secret) and not chosen.hub_offline


def _environment(member: Member, group: Group) -> list[Plain]:
    own = CACHES | member.env
    if wants_token(group.settings):
        own["HF_TOKEN_PATH"] = f"{TOKEN}/token"
    if has_auth_proxy(member, group.settings):
        own[auth_proxy.KEY_FILE] = f"{KEY}/key"
    if group.settings.hub_offline:
        own["HF_HUB_OFFLINE"] = "1"
    return [{"name": name, "value": own[name]} for name in sorted(own)]


def template(
    member: Member, group: Group, own: t.Mapping[str, str], annotations: t.Mapping[str, str], service: str
) -> Plain:
    """Return the pod template of one rank of a model server."""
    chosen = group.settings
    volumes, mounts = _volumes(member, group)
    ports = [{"name": "supervisor", "containerPort": group.supervisor, "protocol": "TCP"}]
    if member.rank == 0:
        ports.append({"name": "http", "containerPort": group.port, "protocol": "TCP"})
    container: Plain = {
        "command": ["python3", f"{PROGRAMS}/supervisor.py", f"{PROGRAMS}/rank{member.rank}.json"],
        "env": _environment(member, group),
        "ports": ports,
        "volumeMounts": mounts,
        # Until the group is complete and the API produces tokens, no rank is restarted for being slow; the supervisor's own
        # bounds end a start earlier, with a cause. Later a dead supervisor is noticed within half a minute.
        "startupProbe": _probe("/started", group.supervisor, failureThreshold=-(-STARTS * group.start_s // PERIOD_S)),
        "readinessProbe": _probe("/ready", group.supervisor, failureThreshold=2),
        "livenessProbe": _probe("/live", group.supervisor, failureThreshold=LIVENESS_FAILURES),
        "terminationMessagePolicy": "File",
    }
    spec: Plain = {
        # A rank is bound to its node: if the node was away, the rank continues when it is back.
        "tolerations": [
            {"key": "nvidia.com/gpu", "operator": "Exists"},
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
        ],
        "priorityClassName": priority_class(chosen),
        "serviceAccountName": service,
        # Its account may only delete the pods of its instance, this one and its siblings, so that their sets replace them
        # (preflight.py deletes its own).
        "automountServiceAccountToken": member.attached,
        "terminationGracePeriodSeconds": 60,
        "volumes": volumes,
    }
    return framed(member, chosen, group.image, container, spec, own, annotations)


def framed(
    member: Member,
    chosen: Settings,
    image: str,
    container: Plain,
    spec: Plain,
    own: t.Mapping[str, str],
    annotations: t.Mapping[str, str],
) -> Plain:
    """Return a rank's pod on its node: the container with a GPU and the rank's VFs, and only the privileges that these need."""
    devices = {chosen.gpu_resource: "1"} if chosen.gpu_resource else {}
    if chosen.rdma == "device_plugin":
        devices |= {networks.resource(rail.name): "1" for rail in member.rails}
    security: Plain = {"privileged": True} if chosen.rdma == "privileged" and member.rails else {
        "allowPrivilegeEscalation": False,
        # Registered memory is locked memory.
        "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    whole: Plain = {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": chosen.image_pull,
        "resources": {"requests": {**chosen.requests, **devices}} | ({"limits": devices} if devices else {}),
        "securityContext": security,
        **container,
    }
    made: Plain = {
        "nodeSelector": {HOSTNAME: member.node},
        "automountServiceAccountToken": False,
        # Kubernetes would set SGLANG_PORT=tcp://… and the like, which engines read as their own settings.
        "enableServiceLinks": False,
        "containers": [whole],
        **spec,
    }
    if chosen.attachment == "host":
        made |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if chosen.runtime_class:
        made["runtimeClassName"] = chosen.runtime_class
    if chosen.image_pull_secrets:
        made["imagePullSecrets"] = [{"name": name} for name in chosen.image_pull_secrets]
    told = {**annotations, **_networks(member, chosen.namespace)}
    return {"metadata": {"labels": dict(own), "annotations": told}, "spec": made}


def priority_class(chosen: Settings) -> str:
    """Return the name of the priority class, which includes the value, since Kubernetes never lets that change."""
    return f"dgxspark-serving-{chosen.priority}"
