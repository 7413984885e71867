"""Two models that are served on four Sparks, as the cluster's objects and the nodes show them."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.instances import Served, instances
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.serving import serving
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import names

Plain = dict[str, t.Any]
HOSTS = names(4)
FIRST, SECOND = "gemma-4-31b-it", "qwen3.6-27b-nvfp4"
BESIDE = {"name": "second", "vf_index": 1, "port": 30001, "dist_port": 51000}


@functools.cache
def planned(profile: str, name: str) -> Plain:
    return inputs.plan(profile, **({"instance": BESIDE} if name == "second" else {}))


def objects(loading: t.Collection[str] = (), **choices: t.Any) -> dict[str, list[Plain]]:
    """The objects of two instances on four Sparks, with their pods; loading: instances that are not ready yet."""
    found: dict[str, list[Plain]] = {"StatefulSet": [], "Pod": [], "ConfigMap": []}
    for profile, name in ((FIRST, "default"), (SECOND, "second")):
        made = serving(planned(profile, name), inputs.fabric(4), {"image": inputs.PINNED, **choices})
        sets = [*made["workers"], *made["head"]]
        found["StatefulSet"] += sets
        found["ConfigMap"] += [each for each in made["common"] if each["kind"] == "ConfigMap"]
        status = {"conditions": [{"type": "Ready", "status": "False" if name in loading else "True"}]}
        for each in sets:
            about = {"namespace": each["metadata"]["namespace"], "name": f"{each['metadata']['name']}-0"}
            found["Pod"].append({"metadata": about, "status": status})
    return found


def two(**choices: t.Any) -> tuple[Served, ...]:
    return instances(objects(**choices), {})


def nodes(gpu: int = 3, gib: float = 121.7) -> list[Plain]:
    status = {"capacity": {"memory": f"{round(gib * 2**20)}Ki"}, "allocatable": {"nvidia.com/gpu": str(gpu)}}
    return [{"metadata": {"labels": {"kubernetes.io/hostname": host}}, "status": status} for host in HOSTS]


def seen(free: t.Mapping[str, float], vfs: int = 3, topology: str = "switch") -> Plain:
    shown = {host: {"mem_available_kib": round(gib * 2**20)} for host, gib in free.items()}
    return {"hosts": HOSTS, "fabric": inputs.fabric(4, vfs, topology), "nodes": shown}


def everywhere(gib: float) -> dict[str, float]:
    return dict.fromkeys(HOSTS, gib)


FEW = (FIRST, SECOND, "qwen3-vl-8b-instruct-fp8", "apertus-70b-instruct-nvfp4")
