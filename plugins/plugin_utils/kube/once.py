# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pod that runs one of our programs once in an engine's image on a node: no GPU, weights, VFs, token or access to the node."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import pod, pulls
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import (
    HOSTNAME,
    Plain,
    Settings,
    labels,
    node_name,
    thing,
)

SCRATCH = "/dgxspark-scratch"
_SECRET_MODE = 0o400
PLACED_S = 60.0  # how long a pod may stay unscheduled: what it requests does not become free by itself


@dataclass(frozen=True)
class OneShotPod:
    """What to run. name: of the pod and of the ConfigMap with its files, which are mounted in pod.PROGRAMS under their paths.

    limits: of the container. room: of its scratch folder. secrets: by mount folder, each (name of a Secret, its key).
    timeout_s: for the pull and the run together.
    """

    name: str
    container: str
    image: str
    command: tuple[str, ...]
    files: t.Mapping[str, str]
    labels: t.Mapping[str, str]
    host: str
    timeout_s: int
    limits: t.Mapping[str, str]
    room: str
    secrets: t.Mapping[str, tuple[str, str]]


def objects(once: OneShotPod, chosen: Settings) -> tuple[list[Plain], Plain]:
    """Return the objects that the pod needs, the namespace first, and the pod. CollectionError for values no manifest can express."""
    items = [{"key": _key(path), "path": path} for path in once.files]
    texts = {_key(path): text for path, text in once.files.items()}
    files = thing("v1", "ConfigMap", once.name, chosen.namespace, once.labels, data=texts)
    volumes: list[Plain] = [
        {"name": "programs", "configMap": {"name": once.name, "items": items}},
        {"name": "scratch", "emptyDir": {"sizeLimit": once.room}},
    ]
    mounts: list[Plain] = [
        {"name": "programs", "mountPath": pod.PROGRAMS, "readOnly": True},
        {"name": "scratch", "mountPath": SCRATCH},
    ]
    for number, (folder, (name, key)) in enumerate(sorted(once.secrets.items())):
        # A file that only root can read: the secret is neither in the environment nor in an argument.
        item = {"key": key, "path": key, "mode": _SECRET_MODE}
        volumes.append({"name": f"secret-{number}", "secret": {"secretName": name, "items": [item]}})
        mounts.append({"name": f"secret-{number}", "mountPath": folder, "readOnly": True})
    spec: Plain = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": once.timeout_s,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostNetwork": False,
        "nodeSelector": {HOSTNAME: node_name(chosen.node_names.get(once.host, once.host), f"host {once.host!r}")},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "volumes": volumes,
        "containers": [
            {
                "name": once.container,
                "image": once.image,
                "imagePullPolicy": chosen.image_pull,
                "command": list(once.command),
                # Without this, an image's own setting would have the NVIDIA runtime give it every GPU.
                "env": [
                    {"name": key, "value": value}
                    for key, value in (("HOME", SCRATCH), ("NVIDIA_VISIBLE_DEVICES", "void"), ("TMPDIR", SCRATCH))
                ],
                "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": dict(once.limits)},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "volumeMounts": mounts,
            }
        ],
    }
    if chosen.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": each} for each in chosen.image_pull_secrets]
    space = thing("v1", "Namespace", chosen.namespace, None, labels())
    return [space, files], thing("v1", "Pod", once.name, chosen.namespace, once.labels, spec=spec)


def _key(path: str) -> str:
    return path.replace("/", ".")


def ended(made: t.Mapping[str, t.Any]) -> bool:
    """Whether a pod has ended."""
    return (made.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def fault(made: t.Mapping[str, t.Any]) -> str | None:
    """Return why a pod failed; empty if it succeeded, None while it runs."""
    status = made.get("status") or {}
    if not ended(made):
        return None
    if status["phase"] == "Succeeded":
        return ""
    end = next((each.get("state", {}).get("terminated") for each in status.get("containerStatuses") or ()), None) or {}
    words = [status.get("reason"), status.get("message"), end.get("reason"), end.get("message")]
    told = " ".join(" ".join(str(word).split()) for word in words if word)[-400:]
    if "OOMKilled" in told:
        most = str(made["spec"]["containers"][0]["resources"]["limits"]["memory"]).replace("Gi", " GiB")
        return f"the pod used more than its memory limit of {most}"
    return f"the program failed: exit status {end.get('exitCode', 'unknown')}. {told}".strip()


def outcome(
    watch: pulls.Watch,
    host: str,
    pods: t.Sequence[t.Mapping[str, t.Any]],
    events: t.Sequence[t.Mapping[str, t.Any]],
    now: float,
) -> tuple[str, str] | None:
    """Return the digest of what ran on the host and why it failed ("" if it did not); None while it runs.

    Raises CollectionError if it will not finish: its pull failed, its time is up, or its pod was deleted or cannot be scheduled.
    """
    runs = [f"{host}: the image was pulled, but its program still runs"] if host in watch.digests else []
    failed = watch.ended(pods, events, now, runs)
    if host in watch.digests and not pods:
        failed = [f"{host}: its pod was deleted by someone else. Run again."]
    refused = pulls.unscheduled(pods[0]) if pods else ""
    if refused and now - watch.began >= PLACED_S:
        failed = [f"{host}: its pod cannot be scheduled: {refused} Uncordon the node, or name another one."]
    why = fault(pods[0]) if pods else None
    if host in watch.digests and why is not None:
        return watch.digests[host], why
    if failed:
        raise CollectionError(" ".join(failed))
    return None
