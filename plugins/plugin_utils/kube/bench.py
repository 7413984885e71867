# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NCCL benchmark as pods: one rank on each host, on the VFs that no served model uses, run once.

For Sparks that have PyTorch only in the engine's image. Plain values in, plain objects out; no cluster access.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import networks, pod, wiring
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import (
    NAME_LABEL,
    PLAN,
    RANK,
    Plain,
    Settings,
    checksum,
    image,
    labels,
    node_name,
    settings,
    thing,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.environment import chosen_index

INSTANCE = NAME = "nccl-bench"
PROGRAM = "nccl_bench.py"
SHM = "1Gi"
INTERVAL_S = 2


@dataclass(frozen=True)
class Job:
    """What to run: an image with PyTorch, the program's text and its arguments.

    port: the rendezvous port of rank 0. timeout_s: after this, Kubernetes ends the pods. vf_index: None means the first VF that is
    not for serving.
    """

    image: str | None
    program: str
    arguments: tuple[str, ...] = ()
    port: int = 29600
    timeout_s: int = 900
    vf_index: int | None = None
    environment: dict[str, str] = field(default_factory=dict)


def bench(
    environments: t.Mapping[str, t.Mapping[str, str]],
    fabric: t.Mapping[str, t.Any],
    job: t.Mapping[str, t.Any],
    kubernetes: t.Mapping[str, t.Any] | None = None,
) -> Plain:
    """Return `common` (before the ranks), `ranks` (pods), `nodes` by host, and `group`, the input of `group.wait`.

    environments: NCCL's, by host in rank order. fabric: the hosts of the fabric plan. job: a Job. kubernetes: an owner's Settings.
    Raises CollectionError for values that no manifest can express.
    """
    chosen, asked = settings(kubernetes), from_plain(Job, dict(job), "job")
    if len(environments) < 2:
        raise CollectionError(f"two hosts are needed; asked: {', '.join(environments) or 'none'}.")
    reference = image(asked.image or chosen.image, "the NCCL benchmark's image")
    planned = networks.hosts(fabric)
    index = chosen_index([planned[host] for host in environments if host in planned], asked.vf_index)
    members = [
        pod.Member(
            rank=rank,
            host=host,
            node=node_name(chosen.node_names.get(host, host), f"host {host!r}"),
            env={str(key): str(value) for key, value in env.items()},
            argv=("python3", f"{pod.PROGRAMS}/{PROGRAM}", *asked.arguments),
            rails=wiring.rails(host, index, planned, chosen, "nccl_vf_index"),
        )
        for rank, (host, env) in enumerate(environments.items())
    ]
    wiring.distinct(members)
    files = thing("v1", "ConfigMap", NAME, chosen.namespace, labels(INSTANCE), data={PROGRAM: asked.program})
    pods = [_pod(member, members[0], len(members), asked, chosen, reference) for member in members]
    stamp = checksum([files, pods])
    for each in pods:
        each["metadata"]["annotations"][PLAN] = stamp
    return {
        "common": [thing("v1", "Namespace", chosen.namespace, None, labels()), files, _rendezvous(chosen, asked)],
        "ranks": pods,
        "nodes": {member.host: member.node for member in members},
        "group": {
            "namespace": chosen.namespace,
            "instance": INSTANCE,
            "plan": stamp,
            "ranks": len(pods),
            "timeout": asked.timeout_s,
            "interval": INTERVAL_S,
        },
    }


def done(made: t.Mapping[str, t.Any], waited: t.Mapping[str, t.Any], logs: t.Sequence[str]) -> dict[str, Plain]:
    """Return by host how its rank ended, in the form that `nccl.measured` takes: `check` and `done`, or `fault`.

    made: from `bench`. waited: from `group.wait`, of the ranks' end. logs: one for each rank, in rank order.
    If no rank ran, every host gets the cause as its fault.
    """
    codes = waited.get("codes") or {}
    why = " ".join(str(waited.get("msg") or "the ranks were not seen to end").split())
    if not codes and not any(logs):
        return {host: {"fault": why} for host in made["nodes"]}
    found: dict[str, Plain] = {}
    for rank, (host, text) in enumerate(zip(made["nodes"], logs, strict=True)):
        code = codes.get(str(rank))
        # Kubernetes keeps stdout and stderr of a container in one log.
        last = text.strip().splitlines()[-1:] if code else []
        ended: Plain = {"rc": code, "stdout": text, "stderr": "\n".join(last)}
        found[host] = {"check": {"rc": 0}, "done": ended | ({"msg": why} if code is None else {})}
    return found


def _own(member: pod.Member) -> dict[str, str]:
    # Not the name of a model server's ranks: no Service or disruption budget of one may select these.
    return labels(INSTANCE, **{NAME_LABEL: "dgxspark-nccl-bench", RANK: str(member.rank)})


def _pod(member: pod.Member, head: pod.Member, ranks: int, job: Job, chosen: Settings, reference: str) -> Plain:
    rendezvous = {
        "RANK": str(member.rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": "0",
        "MASTER_ADDR": wiring.way_to(head, member, f"{NAME}-rank0.{NAME}.{chosen.namespace}.svc"),
        "MASTER_PORT": str(job.port),
    }
    env = {**member.env, **job.environment, **rendezvous}
    container: Plain = {
        "command": list(member.argv),
        "env": [{"name": name, "value": env[name]} for name in sorted(env)],
        "volumeMounts": [
            {"name": "program", "mountPath": pod.PROGRAMS, "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }
    spec: Plain = {
        "hostname": f"{NAME}-rank{member.rank}",
        "subdomain": NAME,
        "restartPolicy": "Never",
        "activeDeadlineSeconds": job.timeout_s,
        "terminationGracePeriodSeconds": 5,
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "volumes": [
            {"name": "program", "configMap": {"name": NAME}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": SHM}},
        ],
    }
    made = pod.framed(member, chosen, reference, container, spec, _own(member), {})
    frame = thing("v1", "Pod", f"{NAME}-rank{member.rank}", chosen.namespace, {}, spec=made["spec"])
    return {**frame, "metadata": {**frame["metadata"], **made["metadata"]}}


def _rendezvous(chosen: Settings, job: Job) -> Plain:
    """Make rank 0 reachable by name, for a ring where not all hosts share a wire."""
    return thing(
        "v1",
        "Service",
        NAME,
        chosen.namespace,
        labels(INSTANCE),
        spec={
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {NAME_LABEL: "dgxspark-nccl-bench"},
            "ports": [{"name": "rendezvous", "port": job.port, "targetPort": job.port, "protocol": "TCP"}],
        },
    )
