"""An instance as it is rendered, and as the cluster has it."""

from __future__ import annotations

import copy
import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.serving import serving
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs

Plain = dict[str, t.Any]


def served(profile: str = "qwen3.5-397b-a17b-nvfp4") -> Plain:
    return serving(inputs.plan(profile), inputs.fabric(4), {"image": inputs.PINNED})


def in_cluster(made: Plain) -> list[Plain]:
    """Return its objects as the cluster has them, with what an API server adds."""
    there = copy.deepcopy([*made["workers"], *made["head"], *(o for o in made["common"] if o["kind"] == "ConfigMap")])
    for each in there:
        each["metadata"] |= {"uid": "u", "resourceVersion": "7", "managedFields": [{}], "creationTimestamp": "x"}
        each["status"] = {"replicas": 1}
    return there
