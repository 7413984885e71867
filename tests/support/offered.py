"""Nodes with what the SR-IOV device plugin offers on them."""

from __future__ import annotations

import copy
import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.platform import platform
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import names

Plain = dict[str, t.Any]


ALL = [f"dgxspark.cluster/p0f{function}v{index}" for function in (0, 1) for index in (0, 1)]
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def cluster(status: Plain | None = None, **offers: list[str]) -> list[Plain]:
    """Return four nodes that offer all VFs, or those given by name, with the plugin's pods and files."""
    files = [
        each for each in platform(inputs.fabric(4), {})["sriov_device_plugin"]["objects"] if each["kind"] == "ConfigMap"
    ]
    made: list[Plain] = copy.deepcopy(files)
    for name in names(4):
        allocatable = dict.fromkeys(offers.get(name, ALL), "1") | {"cpu": "20"}
        made.append({"kind": "Node", "metadata": {"name": name}, "status": {"allocatable": allocatable}})
        labels = {"dgxspark.cluster/part": "sriov_device_plugin"}
        pod = {"name": f"plugin-{name}", "uid": f"1-{name}", "labels": labels}
        made.append({"kind": "Pod", "metadata": pod, "spec": {"nodeName": name}, "status": status or READY})
    return made
