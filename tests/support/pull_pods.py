"""Nodes that have an engine's image or lack it, and what a pod says that pulls it."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.serving import serving
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs

Plain = dict[str, t.Any]


ENGINE = "registry.example/engine:1"
DIGEST = f"sha256:{'a' * 64}"
HOSTS = [f"spark{number}" for number in range(1, 5)]


def served(**choices: t.Any) -> Plain:
    return serving(inputs.plan(attachment="vf"), inputs.fabric(4), {"image": ENGINE, **choices})


def nodes(*having: str, digest: bool = True) -> list[Plain]:
    names = [ENGINE, *([f"registry.example/engine@{DIGEST}"] if digest else [])]
    return [
        {"metadata": {"name": name}, "status": {"images": [{"names": names}] if name in having else []}}
        for name in HOSTS
    ]


def seen(host: str, state: Plain, image_id: str = "", **status: t.Any) -> Plain:
    containers = [{"name": "pull", "imageID": image_id, "state": state}]
    name = f"serve-default-pull-{host}"
    return {"metadata": {"name": name, "uid": host}, "status": {"containerStatuses": containers, **status}}


def waiting(reason: str, message: str) -> Plain:
    return {"waiting": {"reason": reason, "message": message}}
