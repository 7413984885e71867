"""Inputs of the Kubernetes objects for tests: fabric plans of seen nodes, and launch plans of shipped profiles on them."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.hosts import HostInput
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.platform import platform
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.serving import serving
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import make, names, node

Plain = dict[str, t.Any]
COUNTS = (1, 2, 3, 4, 8)
ATTACHMENTS = ("vf", "host")
ACCESSES = ("device_plugin", "privileged")
PROFILES = sorted(knowledge.shared("profile"))
PINNED = "registry.example/engine:1@sha256:" + "0" * 64


@functools.cache
def fabric(count: int, vfs: int = 2, topology: str = "switch") -> Plain:
    """Return the fabric plan's hosts, all of them seen with their VFs; none for a single Spark."""
    if count == 1:
        return {}
    hosts = [HostInput(name, node=node(host=number, vfs=vfs)) for number, name in enumerate(names(count), 1)]
    planned: Plain = make(hosts, {"topology": topology, "vf_count": vfs})["hosts"]
    return planned


def plan(
    profile: str = "qwen3.5-397b-a17b-nvfp4",
    count: int = 4,
    attachment: str = "vf",
    topology: str = "switch",
    **overrides: t.Any,
) -> Plain:
    """Return the launch plan of a profile on this many Sparks."""
    nccl = {"attachment": attachment}
    if topology != "switch" and attachment == "host":
        nccl["bootstrap"] = "enP7s7"  # on a host, the management interface
    cluster = {"hosts": names(count), "fabric": fabric(count, topology=topology), "nccl": nccl}
    return launch_plan(profile, cluster, overrides)


def spreads(count: int) -> t.Iterator[Plain]:
    """Yield ways to split a model over this many nodes."""
    for tp in range(count, 0, -1):
        if count % tp == 0:
            yield {"nodes": count, "tp": tp, "pp": count // tp, "ep": 1}


def fitting(profile: str, count: int, attachment: str, topology: str = "switch") -> t.Iterator[Plain]:
    """Yield the plans of a profile for this many nodes that have a command for every rank, in any spread that divides."""
    own = launch_plan(profile)["parallel"]
    wanted = [own] if own["nodes"] == count else []
    for parallel in [*wanted, *spreads(count)]:
        try:
            made = plan(profile, count, attachment, topology, parallel=parallel)
        except CollectionError:
            continue  # heads or layers do not divide
        if all(rank["argv"] for rank in made["ranks"]):
            yield made
            return


def objects(
    made: Plain, count: int = 4, attachment: str = "vf", rdma: str = "device_plugin", **more: t.Any
) -> list[Plain]:
    """Return every object of one instance with its platform."""
    choice = {"attachment": attachment, "rdma": rdma}
    parts = platform(fabric(count), choice)
    served = serving(made, fabric(count), {**choice, "image": PINNED, **more})
    of_platform = [each for part in parts.values() if part["state"] == "present" for each in part["objects"]]
    return [*of_platform, *served["common"], *served["workers"], *served["head"]]
