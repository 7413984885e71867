# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The platform parts that ranks need, as Kubernetes objects: each can be ours, left to the owner, or removed."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.k3s import layout
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, PlannedHost, from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import multus, networks
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import (
    GPU,
    HOSTNAME,
    MANAGER,
    PART,
    SPARK,
    VFS,
    Plain,
    checksum,
    image,
    label,
    labels,
    node_name,
    rolling,
    thing,
)

SYSTEM = "kube-system"
SRIOV = "dgxspark-sriov-device-plugin"
# The plugin looks for devices only once, at its start, so wait for them, but not forever: one missing VF must not block the others.
WAIT = r"""end=$(( $(date +%s) + 120 ))
for pci in $(grep -oE '[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}[.][0-7]' "/etc/pcidp/$NODE_NAME.json"); do
  until ls "/sys/bus/pci/devices/$pci/infiniband/"* >/dev/null 2>&1; do
    if [ "$(date +%s)" -ge "$end" ]; then
      echo "$pci has no RDMA device after 120 s: it is offered once this pod has been replaced."
      break
    fi
    sleep 1
  done
done
"""
PARTS = ("runtime_class", "nvidia_device_plugin", "cni_plugins", "multus", "sriov_device_plugin", "networks")
STATES = ("present", "absent", "unmanaged")
KUBELET = "/var/lib/kubelet"


@dataclass(frozen=True)
class Platform:
    """An owner's choices. hosts: the Sparks of this run, possibly fewer than the fabric plan's; empty: all of the plan.

    parts: part → present, absent or unmanaged; the state of other parts follows from the attachment.

    vf_indexes: VFs that pods may get; None: all of the plan, so that every instance finds its own. gpu_shares: instances that may
    hold one GPU at the same time. images: part → reference that replaces the known one. data_dir: K3s's, which contains its CNI
    folders. cni_bin_dir, cni_conf_dir: of the nodes; None means K3s's. hca: where a VF's RDMA device is: `pci`, below its PCI
    function, where the SR-IOV device plugin looks for it; or `virtual` (soft-RoCE, in a lab), which cannot be requested.
    """

    namespace: str = "dgx-serving"
    attachment: t.Literal["vf", "host"] = "vf"
    rdma: t.Literal["device_plugin", "privileged"] = "device_plugin"
    hca: t.Literal["pci", "virtual"] = "pci"
    hosts: tuple[str, ...] = ()
    parts: dict[str, str] = field(default_factory=dict)
    vf_indexes: tuple[int, ...] | None = None
    node_names: dict[str, str] = field(default_factory=dict)
    gpu_shares: int = 1
    images: dict[str, str] = field(default_factory=dict)
    image_pull: t.Literal["IfNotPresent", "Never", "Always"] = "IfNotPresent"
    data_dir: str = layout.DATA
    cni_bin_dir: str | None = None
    cni_conf_dir: str | None = None


def known_parts(overlays: t.Sequence[str] = ()) -> t.Mapping[str, knowledge.Entry]:
    """Return the platform's parts that others make, with their images, by name. Treat the entries as read-only."""
    return knowledge.shared("platform", tuple(overlays))


def states(chosen: Platform, vfs: bool = True) -> dict[str, str]:
    """Return each part's state: the owner's choice, else present if the attachment and RDMA access need it.

    vfs: whether any are planned. Without VFs (a single Spark) no plugin hands them out: the SR-IOV device plugin exits on an empty file.
    """
    unknown = sorted(set(chosen.parts) - set(PARTS))
    if unknown:
        raise CollectionError(f"parts: {unknown[0]!r} is not one of {', '.join(PARTS)}.")
    wrong = [(part, state) for part, state in chosen.parts.items() if state not in STATES]
    if wrong:
        raise CollectionError(f"parts.{wrong[0][0]}: {wrong[0][1]!r} is not one of {', '.join(STATES)}.")
    vf = vfs and chosen.attachment == "vf"
    plugin = vfs and chosen.rdma == "device_plugin"
    needs = {"cni_plugins": vf, "multus": vf, "networks": vf, "sriov_device_plugin": plugin}
    usual = {part: "present" if needs.get(part, True) else "unmanaged" for part in PARTS}
    return usual | chosen.parts


def platform(
    fabric: t.Mapping[str, t.Any] | None,
    kubernetes: t.Mapping[str, t.Any] | None = None,
    knowledge_dirs: t.Sequence[str] = (),
    there: t.Sequence[t.Mapping[str, t.Any]] = (),
) -> Plain:
    """Return part → `{state, objects}` in installation order, with objects in every state.

    `nodes` comes before all parts: labels for the nodes that lack them, which restrict the daemons to the Sparks. The part
    cni_plugins has no objects but `install`: files for the nodes, with their checksums.

    fabric: the fabric plan's hosts (empty for a single Spark, which has no VFs to hand out). there: the cluster's Nodes, our
    daemons' Pods and the SR-IOV device plugin's ConfigMap: what belongs to hosts outside this run stays as it is.
    """
    chosen = from_plain(Platform, dict(kubernetes or {}), "kubernetes")
    label(chosen.namespace, "kubernetes.namespace")
    if not chosen.data_dir.startswith("/"):
        raise CollectionError(f"kubernetes.data_dir: {chosen.data_dir!r} is not an absolute path on the nodes.")
    planned = networks.hosts(fabric)
    wanted = states(chosen, any(function.vfs for host in planned.values() for function in host.functions))
    seen = {name: host for name, host in planned.items() if not chosen.hosts or name in chosen.hosts}
    if chosen.vf_indexes is None:
        every = {vf.index for host in planned.values() for function in host.functions for vf in function.vfs}
        chosen = dataclasses.replace(chosen, vf_indexes=tuple(sorted(every)))
    known = known_parts(knowledge_dirs)
    for name in chosen.images:
        if name not in PARTS or name not in known:
            raise CollectionError(
                f"images: {name!r} is not a part with an image: {', '.join(n for n in PARTS if n in known)}."
            )
    makers: dict[str, t.Callable[[], list[Plain]]] = {
        "runtime_class": _runtime_class,
        "nvidia_device_plugin": lambda: _nvidia(chosen, known),
        "cni_plugins": list,
        "multus": lambda: multus.multus(
            _container(chosen, known, "multus"), folders(chosen, known), ON_SPARKS, known["multus"].get("connections")
        ),
        "sriov_device_plugin": lambda: _sriov(chosen, files, known),
        "networks": lambda: _networks(chosen, planned, seen, wanted["networks"]),
    }
    files = _files(chosen, seen, wanted["sriov_device_plugin"] == "present") | _kept(chosen, seen, there)
    parts = {part: {"state": wanted[part], "objects": makers[part]()} for part in PARTS}
    made: Plain = {"nodes": {"state": "labelled", "objects": _labelled(chosen, seen, wanted, files, there)}, **parts}
    plugins = known["cni_plugins"]
    made["cni_plugins"]["install"] = {
        "files": dict(plugins["files"]),
        "members": list(plugins["members"]),
        "folder": folders(chosen, known)["cni_bin"],
    }
    return made


def folders(chosen: Platform, known: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Return the CNI folders of the nodes: the owner's, else K3s's."""
    usual, own = layout.DATA, chosen.data_dir.rstrip("/")
    paths: dict[str, str] = {key: own + path.removeprefix(usual) for key, path in known["k3s_cni"]["paths"].items()}
    if chosen.cni_bin_dir:
        paths |= {"cni_bin": chosen.cni_bin_dir, "cni_bin_parent": chosen.cni_bin_dir}
    if chosen.cni_conf_dir:
        paths["cni_conf"] = chosen.cni_conf_dir
    return paths


def reference(entry: t.Mapping[str, t.Any]) -> str:
    """Return the reference of a part's image from knowledge/platform: a known digest overrides the tag."""
    return str(entry["image"]) + (f"@{entry['digest']}" if entry["digest"] else "")


def _container(chosen: Platform, known: t.Mapping[str, t.Any], part: str) -> Plain:
    """Return image, pull policy and memory of a part's container."""
    entry = known[part]
    memory = entry["memory"]
    return {
        "image": image(chosen.images.get(part, reference(entry)), f"images.{part}"),
        "imagePullPolicy": chosen.image_pull,
        "resources": {
            "requests": {"cpu": "50m", "memory": memory["request"]},
            "limits": {"memory": memory["limit"]},
        },
    }


def _node(chosen: Platform, host: str) -> str:
    return node_name(chosen.node_names.get(host, host), f"host {host!r}")


# A label, not a list of names: a run that sees fewer Sparks would remove the daemons from the others, while ranks run there.
ON_SPARKS: Plain = {"nodeSelector": {SPARK: "true"}}


def _labelled(
    chosen: Platform,
    seen: t.Iterable[str],
    wanted: t.Mapping[str, str],
    files: t.Mapping[str, str],
    there: t.Sequence[t.Mapping[str, t.Any]],
) -> list[Plain]:
    """Return the missing labels: for this run's nodes, and for those that run our daemons already (an earlier release
    selected them by name)."""
    daemons = ("multus", "sriov_device_plugin", "nvidia_device_plugin")
    if all(wanted[part] != "present" for part in daemons):
        return []
    own = {_node(chosen, name) for name in (*seen, *chosen.hosts)}
    carrying: dict[str, set[str]] = {}
    for each in there:
        part = (each["metadata"].get("labels") or {}).get(PART)
        if each["kind"] == "Pod" and part in daemons and each["spec"].get("nodeName"):
            carrying.setdefault(str(part), set()).add(each["spec"]["nodeName"])
    sparks = own.union(*carrying.values())
    offering = {name.removesuffix(".json") for name, text in files.items() if json.loads(text)["resourceList"]}
    made = []
    for each in there:
        if each["kind"] != "Node":
            continue
        has = each["metadata"].get("labels") or {}
        names = {each["metadata"]["name"], has.get(HOSTNAME)}
        due = {key: "true" for key, whose in ((SPARK, sparks), (VFS, offering)) if names & whose}
        if any(has.get(key) != "true" for key in due):
            made.append(
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": each["metadata"]["name"], "labels": due}}
            )
    return made


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
            **rolling(),
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


def _nvidia(chosen: Platform, known: t.Mapping[str, t.Any]) -> list[Plain]:
    """NVIDIA's device plugin, with CDI; with shares, several instances can hold the one GPU."""
    if chosen.gpu_shares < 1:
        raise CollectionError(f"gpu_shares: {chosen.gpu_shares} is not a whole number of at least 1.")
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
    spec = {"containers": [container], "volumes": volumes, **ON_SPARKS}
    return [
        thing("v1", "ConfigMap", "dgxspark-nvidia-device-plugin", SYSTEM, own, data={"config.json": text}),
        daemon("dgxspark-nvidia-device-plugin", "nvidia_device_plugin", spec, {f"{MANAGER}/config": checksum(text)}),
    ]


def _files(chosen: Platform, seen: t.Mapping[str, PlannedHost], needed: bool) -> dict[str, str]:
    """Return the SR-IOV device plugin's file for each node of this run: one resource for each function × VF index, by PCI address,
    since a VF's interface moves into the pod."""
    files: dict[str, str] = {}
    for name, host in seen.items():
        resources = []
        for index in sorted(set(chosen.vf_indexes or ())):
            for function, vf in networks.rails(host, index):
                if vf.pci is None and not needed:
                    continue
                selectors = {"pciAddresses": [networks.pci(name, function, vf)], "isRdma": chosen.hca == "pci"}
                entry = {
                    "resourceName": networks.vf_name(function, vf),
                    "resourcePrefix": MANAGER,
                    "selectors": [selectors],
                }
                resources.append(entry)
        if resources:
            files[f"{_node(chosen, name)}.json"] = (
                json.dumps({"resourceList": resources}, indent=1, sort_keys=True) + "\n"
            )
    return files


def _kept(chosen: Platform, seen: t.Iterable[str], there: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, str]:
    """Return the files of nodes outside this run, except those that have left the cluster."""
    own = {f"{_node(chosen, name)}.json" for name in seen}
    nodes = [each["metadata"] for each in there if each["kind"] == "Node"]
    known = {f"{name}.json" for node in nodes for name in (node["name"], (node.get("labels") or {}).get(HOSTNAME))}
    return {
        name: str(text)
        for each in there
        if each["kind"] == "ConfigMap" and each["metadata"]["name"] == SRIOV
        for name, text in (each.get("data") or {}).items()
        if name in known - own
    }


def _sriov(chosen: Platform, files: t.Mapping[str, str], known: t.Mapping[str, t.Any]) -> list[Plain]:
    """The SR-IOV device plugin. PCI addresses differ by node, so each node reads its own file."""
    own = labels(**{PART: "sriov_device_plugin"})
    env = [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    container = {
        **_container(chosen, known, "sriov_device_plugin"),
        "name": "plugin",
        "args": [
            "--config-file=/etc/pcidp/$(NODE_NAME).json",
            f"--resource-prefix={MANAGER}",
            "--log-level=4",
        ],
        "env": env,
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
        {"name": "config", "configMap": {"name": SRIOV}},
    ]
    # The plugin exits at once without a file, or with an empty one: it runs only on nodes that have one.
    where = {"nodeSelector": {SPARK: "true", VFS: "true"}}
    spec = {"hostNetwork": True, "containers": [container], "volumes": volumes, **where}
    if "sriov_device_plugin" not in chosen.images:  # an owner's image may have no shell
        wait = {
            **_container(chosen, known, "sriov_device_plugin"),
            "name": "wait",
            "command": ["/bin/sh", "-c", WAIT if chosen.hca == "pci" else WAIT.replace("/infiniband/", "/")],
            "env": env,
            "volumeMounts": [mount for mount in container["volumeMounts"] if mount["name"] == "config"],
        }
        spec["initContainers"] = [wait]
    told = {f"{MANAGER}/config": checksum(dict(files))}
    return [
        thing("v1", "ConfigMap", SRIOV, SYSTEM, own, data=dict(files)),
        daemon(SRIOV, "sriov_device_plugin", spec, told),
    ]


def _networks(
    chosen: Platform, planned: t.Mapping[str, PlannedHost], seen: t.Mapping[str, PlannedHost], state: str
) -> list[Plain]:
    plugin = chosen.rdma == "device_plugin"
    if state != "present":  # for removal only the names count
        plugin = True
    made = networks.attachments(planned, chosen.vf_indexes or (), chosen.namespace, plugin, seen)
    return [thing("v1", "Namespace", chosen.namespace, None, labels()), *made] if made else []
