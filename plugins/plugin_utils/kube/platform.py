# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of the platform that ranks need, as Kubernetes objects: each can be ours, left to the owner, or taken away."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError, PlannedHost, from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import multus, networks
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import (
    GPU,
    HOSTNAME,
    MANAGER,
    PART,
    Plain,
    checksum,
    image,
    label,
    labels,
    node_name,
    thing,
)

SYSTEM = "kube-system"
PARTS = ("runtime_class", "nvidia_device_plugin", "cni_plugins", "multus", "sriov_device_plugin", "networks")
STATES = ("present", "absent", "unmanaged")
KUBELET = "/var/lib/kubelet"


@dataclass(frozen=True)
class Platform:
    """An owner's choices. hosts: the Sparks, where the fabric plan has none (a single one).

    parts: part → present, absent or unmanaged; what is not named follows from the attachment.

    vf_indexes: VFs that pods may get; None: all of the plan, so that every instance finds its own. gpu_shares: instances
    that may hold one GPU at the same time. images: part → reference instead of the known one. cni_bin_dir, cni_conf_dir: of the nodes; None means K3s's.
    """

    namespace: str = "dgx-serving"
    attachment: t.Literal["vf", "host"] = "vf"
    rdma: t.Literal["device_plugin", "privileged"] = "device_plugin"
    hosts: tuple[str, ...] = ()
    parts: dict[str, str] = field(default_factory=dict)
    vf_indexes: tuple[int, ...] | None = None
    node_names: dict[str, str] = field(default_factory=dict)
    gpu_shares: int = 1
    images: dict[str, str] = field(default_factory=dict)
    image_pull: t.Literal["IfNotPresent", "Never", "Always"] = "IfNotPresent"
    cni_bin_dir: str | None = None
    cni_conf_dir: str | None = None


def states(chosen: Platform) -> dict[str, str]:
    """Return each part's state: the owner's word, else present where the attachment and RDMA access need it."""
    unknown = sorted(set(chosen.parts) - set(PARTS))
    if unknown:
        raise FabricError(f"parts: {unknown[0]!r} is not one of {', '.join(PARTS)}.")
    wrong = [(part, state) for part, state in chosen.parts.items() if state not in STATES]
    if wrong:
        raise FabricError(f"parts.{wrong[0][0]}: {wrong[0][1]!r} is not one of {', '.join(STATES)}.")
    vf = chosen.attachment == "vf"
    needs = {"cni_plugins": vf, "multus": vf, "networks": vf, "sriov_device_plugin": chosen.rdma == "device_plugin"}
    usual = {part: "present" if needs.get(part, True) else "unmanaged" for part in PARTS}
    return usual | chosen.parts


def platform(
    fabric: t.Mapping[str, t.Any] | None,
    kubernetes: t.Mapping[str, t.Any] | None = None,
    knowledge_dirs: t.Sequence[str] = (),
) -> Plain:
    """Return part → `{state, objects}` in the order in which parts are put there, with the objects of every state.

    The part cni_plugins has no objects but `install`: files for the nodes, with their checksums.

    fabric: the fabric plan's hosts (empty for a single Spark: then there are no VFs to hand out).
    """
    chosen = from_plain(Platform, dict(kubernetes or {}), "kubernetes")
    label(chosen.namespace, "kubernetes.namespace")
    wanted = states(chosen)
    planned = networks.hosts(fabric)
    if chosen.vf_indexes is None:
        every = {vf.index for host in planned.values() for function in host.functions for vf in function.vfs}
        chosen = dataclasses.replace(chosen, vf_indexes=tuple(sorted(every)))
    known = knowledge.load("platform", knowledge_dirs)
    for name in chosen.images:
        if name not in PARTS or name not in known:
            raise FabricError(
                f"images: {name!r} is no part with an image: {', '.join(n for n in PARTS if n in known)}."
            )
    makers: dict[str, t.Callable[[], list[Plain]]] = {
        "runtime_class": _runtime_class,
        "nvidia_device_plugin": lambda: _nvidia(chosen, planned, known),
        "cni_plugins": list,
        "multus": lambda: multus.multus(
            _container(chosen, known, "multus"), _paths(chosen, known), _on(_nodes(chosen, planned))
        ),
        "sriov_device_plugin": lambda: _sriov(chosen, planned, known),
        "networks": lambda: _networks(chosen, planned, wanted["networks"]),
    }
    made: Plain = {part: {"state": wanted[part], "objects": makers[part]()} for part in PARTS}
    plugins = known["cni_plugins"]
    made["cni_plugins"]["install"] = {
        "files": dict(plugins["files"]),
        "members": list(plugins["members"]),
        "folder": _paths(chosen, known)["cni_bin"],
    }
    return made


def _paths(chosen: Platform, known: t.Mapping[str, t.Any]) -> dict[str, str]:
    paths: dict[str, str] = dict(known["k3s_cni"]["paths"])
    if chosen.cni_bin_dir:
        paths |= {"cni_bin": chosen.cni_bin_dir, "cni_bin_parent": chosen.cni_bin_dir}
    if chosen.cni_conf_dir:
        paths["cni_conf"] = chosen.cni_conf_dir
    return paths


def _container(chosen: Platform, known: t.Mapping[str, t.Any], part: str) -> Plain:
    """Return image, pull policy and memory of a part's container. A known digest wins over its tag."""
    entry = known[part]
    reference = entry["image"] + (f"@{entry['digest']}" if entry["digest"] else "")
    memory = entry["memory"]
    return {
        "image": image(chosen.images.get(part, reference), f"images.{part}"),
        "imagePullPolicy": chosen.image_pull,
        "resources": {
            "requests": {"cpu": "50m", "memory": memory["request"]},
            "limits": {"memory": memory["limit"]},
        },
    }


def _nodes(chosen: Platform, planned: t.Mapping[str, PlannedHost]) -> list[str]:
    return [node_name(chosen.node_names.get(name, name), f"host {name!r}") for name in planned or chosen.hosts]


def _on(nodes: t.Sequence[str]) -> Plain:
    """Keep a daemon to the Sparks: on a control plane without GPU and VFs it has nothing to do."""
    wish = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": list(nodes)}]}
    terms = {"nodeSelectorTerms": [wish]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}} if nodes else {}


def daemon(name: str, part: str, spec: Plain, annotations: Plain | None = None) -> Plain:
    """Return a DaemonSet of a part in kube-system."""
    own = labels(**{PART: part})
    select = {PART: part}
    return thing(
        "apps/v1",
        "DaemonSet",
        name,
        SYSTEM,
        own,
        spec={
            "selector": {"matchLabels": select},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": own} | ({"annotations": annotations} if annotations else {}),
                "spec": {
                    "priorityClassName": "system-node-critical",
                    "tolerations": [{"operator": "Exists"}],
                    "enableServiceLinks": False,
                    **spec,
                },
            },
        },
    )


def _runtime_class() -> list[Plain]:
    return [
        thing(
            "node.k8s.io/v1",
            "RuntimeClass",
            "dgxspark-nvidia",
            None,
            labels(**{PART: "runtime_class"}),
            handler="nvidia",
        )
    ]


def _nvidia(chosen: Platform, planned: t.Mapping[str, PlannedHost], known: t.Mapping[str, t.Any]) -> list[Plain]:
    """NVIDIA's device plugin, by CDI; with shares, so that several instances can each hold the one GPU."""
    if chosen.gpu_shares < 1:
        raise FabricError(f"gpu_shares: {chosen.gpu_shares} is not a whole number of at least 1.")
    own = labels(**{PART: "nvidia_device_plugin"})
    shares = {"sharing": {"timeSlicing": {"resources": [{"name": GPU, "replicas": chosen.gpu_shares}]}}}
    config: Plain = {
        "version": "v1",
        "flags": {"deviceDiscoveryStrategy": "nvml", "plugin": {"deviceListStrategy": ["cdi-cri"]}},
        **(shares if chosen.gpu_shares > 1 else {}),
    }
    text = json.dumps(config, indent=1, sort_keys=True) + "\n"
    container = {
        **_container(chosen, known, "nvidia_device_plugin"),
        "name": "plugin",
        "args": ["--config-file=/config/config.json"],
        "env": [{"name": "NVIDIA_MIG_MONITOR_DEVICES", "value": "all"}],
        "securityContext": {"privileged": True},
        "volumeMounts": [
            {"name": "device-plugins", "mountPath": f"{KUBELET}/device-plugins"},
            # Without the driver's files NVML is "library not found"; without a writable CDI folder shares cannot be resolved.
            {
                "name": "driver-root",
                "mountPath": "/driver-root",
                "readOnly": True,
                "mountPropagation": "HostToContainer",
            },
            {"name": "cdi", "mountPath": "/var/run/cdi"},
            {"name": "config", "mountPath": "/config", "readOnly": True},
        ],
    }
    volumes = [
        {"name": "device-plugins", "hostPath": {"path": f"{KUBELET}/device-plugins", "type": "Directory"}},
        {"name": "driver-root", "hostPath": {"path": "/"}},
        {"name": "cdi", "hostPath": {"path": "/var/run/cdi", "type": "DirectoryOrCreate"}},
        {"name": "config", "configMap": {"name": "dgxspark-nvidia-device-plugin"}},
    ]
    spec = {"containers": [container], "volumes": volumes, **_on(_nodes(chosen, planned))}
    return [
        thing("v1", "ConfigMap", "dgxspark-nvidia-device-plugin", SYSTEM, own, data={"config.json": text}),
        daemon("dgxspark-nvidia-device-plugin", "nvidia_device_plugin", spec, {f"{MANAGER}/config": checksum(text)}),
    ]


def _sriov(chosen: Platform, planned: t.Mapping[str, PlannedHost], known: t.Mapping[str, t.Any]) -> list[Plain]:
    """The SR-IOV device plugin: one resource for each function × VF index, by PCI address, since a VF's interface leaves
    the node. Addresses are a node's own, so each node reads a file of its own."""
    own = labels(**{PART: "sriov_device_plugin"})
    files: dict[str, str] = {}
    for name, host in planned.items():
        node = node_name(chosen.node_names.get(name, name), f"host {name!r}")
        resources = []
        for index in sorted(set(chosen.vf_indexes or ())):
            for function, vf in networks.rails(host, index):
                if vf.pci is None:
                    if states(chosen)["sriov_device_plugin"] != "present":
                        continue
                    raise FabricError(
                        f"{name}: {networks.vf_name(function, vf)}: its PCI address is not known. Make the VFs and gather "
                        "roce_info first: it is read of the node."
                    )
                selectors = {"pciAddresses": [vf.pci], "isRdma": True}
                entry = {
                    "resourceName": networks.vf_name(function, vf),
                    "resourcePrefix": MANAGER,
                    "selectors": [selectors],
                }
                resources.append(entry)
        files[f"{node}.json"] = json.dumps({"resourceList": resources}, indent=1, sort_keys=True) + "\n"
    container = {
        **_container(chosen, known, "sriov_device_plugin"),
        "name": "plugin",
        "args": [
            "--config-file=/etc/pcidp/$(NODE_NAME).json",
            f"--resource-prefix={MANAGER}",
            "--log-level=4",
        ],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "securityContext": {"privileged": True},
        "volumeMounts": [
            {"name": "kubelet", "mountPath": KUBELET},
            {"name": "device-info", "mountPath": "/var/run/k8s.cni.cncf.io/devinfo/dp"},
            {"name": "config", "mountPath": "/etc/pcidp", "readOnly": True},
        ],
    }
    volumes = [
        {"name": "kubelet", "hostPath": {"path": KUBELET, "type": "Directory"}},
        {
            "name": "device-info",
            "hostPath": {"path": "/var/run/k8s.cni.cncf.io/devinfo/dp", "type": "DirectoryOrCreate"},
        },
        {"name": "config", "configMap": {"name": "dgxspark-sriov-device-plugin"}},
    ]
    spec = {"hostNetwork": True, "containers": [container], "volumes": volumes, **_on(_nodes(chosen, planned))}
    told = {f"{MANAGER}/config": checksum(files)}
    return [
        thing("v1", "ConfigMap", "dgxspark-sriov-device-plugin", SYSTEM, own, data=files),
        daemon("dgxspark-sriov-device-plugin", "sriov_device_plugin", spec, told),
    ]


def _networks(chosen: Platform, planned: t.Mapping[str, PlannedHost], state: str) -> list[Plain]:
    plugin = chosen.rdma == "device_plugin"
    if state != "present":  # to be taken away, names alone count
        plugin = True
    made = networks.attachments(planned, chosen.vf_indexes or (), chosen.namespace, plugin)
    return [thing("v1", "Namespace", chosen.namespace, None, labels()), *made] if made else []
