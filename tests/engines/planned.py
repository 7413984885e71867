"""The plan of one rank on this machine, and the pod that is rendered from it."""

from __future__ import annotations

import hashlib
import pathlib
import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.serving import serving
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan
from ansible_collections.dgxspark.cluster.tests.engines.kubelet import Pod
from ansible_collections.dgxspark.cluster.tests.support.ports import free_port
from ansible_collections.dgxspark.cluster.tests.unit.kube_inputs import PINNED

Plain = dict[str, t.Any]
PROFILE = "tiny-cpu"
OWN = pathlib.Path(__file__).resolve().parent / "knowledge"
KIB_PER_GIB = 2**20
# Settings for a machine without GPU and fabric: no device, no runtime class.
BARE: Plain = {"image": PINNED, "gpu_resource": None, "runtime_class": None, "shm": "1Gi"}


def _gib(file: str, name: str) -> float:
    lines = pathlib.Path(file).read_text(encoding="ascii").splitlines()
    return next(int(line.split()[-2]) / KIB_PER_GIB for line in lines if f"{name}:" in line.split())


def total_gib() -> float:
    """Return what the engine takes as total memory: the first NUMA node's, not the machine's (vLLM cpu_resource_utils.py)."""
    node = "/sys/devices/system/node/node0/meminfo"
    return _gib(node if pathlib.Path(node).is_file() else "/proc/meminfo", "MemTotal")


def free_gib() -> float:
    """Return how much of it is free."""
    return min(total_gib(), _gib("/proc/meminfo", "MemAvailable"))


def plan(overlays: t.Sequence[str], profile: str = PROFILE, settings: Plain | None = None) -> Plain:
    """Plan the tiny model, or one of its kind, on this machine as it is now."""
    supervisor = free_port(2)  # the supervisor's port is the one below dist_port
    instance = {"name": "tiny", "port": free_port(), "dist_port": supervisor + 1}
    cluster = {"hosts": ["node1"], "free_gib": round(free_gib(), 2)}
    return launch_plan(profile, cluster, {"instance": instance, "settings": settings or {}}, overlays)


def pod(
    made: Plain,
    overlays: t.Sequence[str],
    model: pathlib.Path,
    root: pathlib.Path,
    engine: pathlib.Path,
    **kubernetes: t.Any,
) -> Pod:
    """Render the plan and make its one pod, with the model where the hub's library looks for it."""
    served = serving(made, {}, BARE | kubernetes, overlays)
    (head,) = served["head"]
    made_pod = Pod(head["spec"]["template"], served["common"], root, f"{engine}:/usr/bin:/bin")
    lay_into_hub_cache(model, made["model"], pathlib.Path(made_pod.environment()["HF_HOME"]))
    return made_pod


def lay_into_hub_cache(model: pathlib.Path, name: str, home: pathlib.Path) -> None:
    """Put a model where a download would have put it."""
    place = home / "hub" / f"models--{name.replace('/', '--')}"
    revision = hashlib.sha1((model / "config.json").read_bytes()).hexdigest()
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text(revision, encoding="utf-8")
    (place / "snapshots").mkdir()
    (place / "snapshots" / revision).symlink_to(model)
