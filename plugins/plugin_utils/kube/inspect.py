# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pod that runs an engine's image once on a node, to read what is in it: no GPU, no weights, no VFs, no token, nothing of the node."""

from __future__ import annotations

import functools
import hashlib
import json
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.engine_parser import (
    engine_sglang,
    engine_vllm,
    fake_torch,
    reader,
    run,
    stubs,
)
from ansible_collections.dgxspark.cluster.plugins.module_utils.serving import patches
from ansible_collections.dgxspark.cluster.plugins.module_utils.source import source_of
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import pod, pulls
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import (
    HOSTNAME,
    MANAGER,
    Plain,
    image,
    labels,
    node_name,
    settings,
    thing,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.patches import load_patches

INSPECT = f"{MANAGER}/inspect"  # label: a checksum of the image that is read
SCRATCH, ROOM = "/dgxspark-scratch", "2Gi"
ASKED = "asked.json"


@functools.cache
def sources() -> dict[str, str]:
    """Return the programs: file name → text."""
    programs = (reader, run, stubs, fake_torch, engine_sglang, engine_vllm, patches)
    return {f"{program.__name__.rpartition('.')[2]}.py": source_of(program) for program in programs}


def asked(overlays: t.Sequence[str] = ()) -> str:
    """Return what the reader is asked, in JSON: for which patches it looks, and the model for which the parser tells its defaults."""
    patches_ = [patch.told for patch in load_patches(overlays)]
    return json.dumps({"patches": patches_, "probe": knowledge.get("probes", "dense")["config"]})


def objects(
    reference: str, host: str, kubernetes: t.Mapping[str, t.Any] | None, timeout_s: int, overlays: t.Sequence[str] = ()
) -> tuple[list[Plain], Plain]:
    """Return what the pod needs, the namespace first, and the pod. host: where it runs. kubernetes: an owner's Settings.

    timeout_s: for the pull and the run together. CollectionError for what cannot be written down.
    """
    chosen = settings(kubernetes)
    named = image(reference, "the image to be read")
    name = f"inspect-{hashlib.sha256(named.encode()).hexdigest()[:12]}"
    own = labels() | {"app.kubernetes.io/component": "image-inspect", INSPECT: name}
    files = thing("v1", "ConfigMap", name, chosen.namespace, own, data={**sources(), ASKED: asked(overlays)})
    spec: Plain = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": timeout_s,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostNetwork": False,
        "nodeSelector": {HOSTNAME: node_name(chosen.node_names.get(host, host), f"host {host!r}")},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "volumes": [
            {"name": "programs", "configMap": {"name": name}},
            {"name": "scratch", "emptyDir": {"sizeLimit": ROOM}},
        ],
        "containers": [
            {
                "name": "inspect",
                "image": named,
                "imagePullPolicy": chosen.image_pull,
                "command": ["python3", f"{pod.PROGRAMS}/reader.py", f"{pod.PROGRAMS}/{ASKED}"],
                # An image's own word would have the NVIDIA runtime hand it every GPU.
                "env": [
                    {"name": key, "value": value}
                    for key, value in (("HOME", SCRATCH), ("NVIDIA_VISIBLE_DEVICES", "void"), ("TMPDIR", SCRATCH))
                ],
                "resources": {
                    "requests": {"cpu": "100m", "memory": "256Mi"},
                    "limits": {"cpu": "4", "memory": "6Gi", "ephemeral-storage": "3Gi"},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "volumeMounts": [
                    {"name": "programs", "mountPath": pod.PROGRAMS, "readOnly": True},
                    {"name": "scratch", "mountPath": SCRATCH},
                ],
            }
        ],
    }
    if chosen.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": each} for each in chosen.image_pull_secrets]
    space = thing("v1", "Namespace", chosen.namespace, None, labels())
    return [space, files], thing("v1", "Pod", name, chosen.namespace, own, spec=spec)


def selector(made: Plain) -> list[str]:
    """Return the labels by which this pod is found."""
    return [f"{INSPECT}={made['metadata']['labels'][INSPECT]}"]


def fault(made: t.Mapping[str, t.Any]) -> str | None:
    """Return why a pod did not end well; empty where it did, None while it runs."""
    status = made.get("status") or {}
    if status.get("phase") not in ("Succeeded", "Failed"):
        return None
    if status["phase"] == "Succeeded":
        return ""
    ended = (
        next((each.get("state", {}).get("terminated") for each in status.get("containerStatuses") or ()), None) or {}
    )
    words = [status.get("reason"), status.get("message"), ended.get("reason"), ended.get("message")]
    told = " ".join(" ".join(str(word).split()) for word in words if word)[-400:]
    if "OOMKilled" in told:
        return "the pod took more than its 6 GiB of memory"
    return f"the program did not end well: exit status {ended.get('exitCode', 'unknown')}. {told}".strip()


def outcome(
    watch: pulls.Watch,
    host: str,
    pods: t.Sequence[t.Mapping[str, t.Any]],
    events: t.Sequence[t.Mapping[str, t.Any]],
    now: float,
) -> tuple[str, str] | None:
    """Return the digest of what ran on the host and why it did not end well ("" where it did); None while it is at work.

    Raises CollectionError where it cannot come to an end.
    """
    runs = [f"{host}: it was pulled, and its program still runs"] if host in watch.digests else []
    failed = watch.ended(pods, events, now, runs)
    if host in watch.digests and not pods:
        failed = [f"{host}: its pod was taken away by somebody else. Run again."]
    why = fault(pods[0]) if pods else None
    if host in watch.digests and why is not None:
        return watch.digests[host], why
    if failed:
        raise CollectionError(" ".join(failed))
    return None
