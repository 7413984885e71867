"""A cluster that others have made: its nodes, and their Multus and device plugins, as their projects' manifests have them."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.multus import CRD

Plain = dict[str, t.Any]
VFS = {f"dgxspark.cluster/p0f{function}v{index}": "1" for function in (0, 1) for index in (0, 1)}
K3S = ("/var/lib/rancher/k3s/agent/etc/cni/net.d", "/var/lib/rancher/k3s/data/cni/")


def nodes(version: str = "v1.36.4+k3s1", offers: Plain | None = None, **labels: Plain) -> list[Plain]:
    """Return four Sparks and a control plane. labels: more of them, by name."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels.get(name, {})}},
            "status": {"nodeInfo": {"kubeletVersion": version}, "allocatable": dict(offers or {}) | {"cpu": "20"}},
        }
        for name in ("spark1", "spark2", "spark3", "spark4", "control")
    ]


def daemon(name: str, image: str, paths: t.Sequence[str] = K3S, select: Plain | None = None) -> Plain:
    """Return somebody's DaemonSet."""
    volumes = [{"name": f"v{number}", "hostPath": {"path": path}} for number, path in enumerate(paths)]
    containers = [
        {
            "name": "main",
            "image": image,
            "volumeMounts": [{"name": v["name"], "mountPath": f"/{v['name']}"} for v in volumes],
        }
    ]
    spec: Plain = {"containers": containers, "volumes": volumes, "tolerations": [{"operator": "Exists"}]}
    labels = {"app": name, "owner": "somebody"}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system", "labels": labels},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels}, "spec": spec | ({"nodeSelector": select} if select else {})},
        },
    }


def crd(scope: str = "Namespaced") -> Plain:
    """Return upstream's definition of network attachments, as far as it is read here."""
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"config": {"type": "string"}}}},
    }
    names = {
        "kind": "NetworkAttachmentDefinition",
        "plural": "network-attachment-definitions",
        "singular": "network-attachment-definition",
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD, "labels": {"owner": "somebody"}},
        "spec": {"group": "k8s.cni.cncf.io", "scope": scope, "names": names, "versions": [version]},
    }


MULTUS = daemon("kube-multus-ds", "ghcr.io/k8snetworkplumbingwg/multus-cni:v4.2.4-thick")
SRIOV = daemon("kube-sriov-device-plugin-arm64", "ghcr.io/k8snetworkplumbingwg/sriov-network-device-plugin:v3.9.0")
NVIDIA = daemon("nvidia-device-plugin-daemonset", "nvcr.io/nvidia/k8s-device-plugin:v0.18.2")
