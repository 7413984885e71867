# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Multus (thick plugin) with K3s's CNI folders.

Six settings differ from upstream's quick start, as upstream's were each seen to break on K3s: the configuration folder is K3s's;
the plugin folder is mounted through its parent, into which its links point; the daemon gets that folder as a setting; mounts do
not propagate back to the node, where they would pile up over K3s's own; the daemon has enough memory for a cold boot; and the
number of pods that it serves at a time is bounded.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import networks
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import (
    MANAGED_BY_LABEL,
    MANAGER,
    PART,
    Plain,
    checksum,
    labels,
    rolling,
    thing,
)

NAME = "dgxspark-multus"
SYSTEM = "kube-system"
CRD = "network-attachment-definitions.k8s.cni.cncf.io"
SELECTORS = (f"{MANAGED_BY_LABEL}={MANAGER}", f"{PART}=multus")  # of its pods


def lacking(nodes: t.Iterable[str], pods: t.Iterable[t.Mapping[str, t.Any]]) -> list[str]:
    """Return the nodes without a ready Multus pod. pods: Multus's."""
    return sorted(set(nodes) - {each["spec"].get("nodeName") for each in pods if _ready(each)})


def _ready(pod: t.Mapping[str, t.Any]) -> bool:
    containers = pod.get("status", {}).get("containerStatuses") or [{}]
    return bool(containers[0].get("ready"))


def multus(
    container: Plain, paths: t.Mapping[str, str], place: t.Mapping[str, t.Any], connections: int | None = None
) -> list[Plain]:
    """Return Multus's objects.

    container: image, pull policy, resources; paths: of the nodes, from knowledge/platform; place: restricts its pods to the
    Sparks; connections: requests that a daemon serves at a time (from 4.3.0 on; older releases ignore the key).
    """
    own = labels(**{PART: "multus"})
    config = json.dumps(
        {
            "chrootDir": "/hostroot",
            "cniVersion": networks.CNI_VERSION,
            "logLevel": "error",
            "logToStderr": True,
            "cniConfigDir": "/host/etc/cni/net.d",
            "multusAutoconfigDir": "/host/etc/cni/net.d",
            "multusConfigFile": "auto",
            "socketDir": "/host/run/multus/",
            "binDir": paths["cni_bin"],
            **({"connectionLimit": connections} if connections else {}),
        },
        indent=1,
        sort_keys=True,
    )
    account = [{"kind": "ServiceAccount", "name": NAME, "namespace": SYSTEM}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME}
    return [
        _definition(own),
        thing("v1", "ServiceAccount", NAME, SYSTEM, own),
        thing("rbac.authorization.k8s.io/v1", "ClusterRole", NAME, None, own, rules=_rules()),
        thing("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", NAME, None, own, roleRef=role, subjects=account),
        thing("v1", "ConfigMap", NAME, SYSTEM, own, data={"daemon-config.json": config + "\n"}),
        _daemon(own, container, paths, checksum(config), place),
    ]


def _definition(own: t.Mapping[str, str]) -> Plain:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {"config": {"type": "string", "description": "A CNI configuration in JSON."}},
            }
        },
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {
        "kind": "NetworkAttachmentDefinition",
        "listKind": "NetworkAttachmentDefinitionList",
        "plural": "network-attachment-definitions",
        "singular": "network-attachment-definition",
        "shortNames": ["nad", "net-attach-def"],
    }
    spec = {"group": "k8s.cni.cncf.io", "scope": "Namespaced", "names": names, "versions": [version]}
    return thing("apiextensions.k8s.io/v1", "CustomResourceDefinition", CRD, None, own, spec=spec)


def _rules() -> list[Plain]:
    def rule(groups: list[str], resources: list[str], verbs: list[str]) -> Plain:
        return {"apiGroups": groups, "resources": resources, "verbs": verbs}

    return [
        rule(["k8s.cni.cncf.io"], ["*"], ["get", "list", "watch"]),
        # The daemon writes each pod's network status into its annotations.
        rule([""], ["pods", "pods/status"], ["get", "list", "update", "watch"]),
        rule(["", "events.k8s.io"], ["events"], ["create", "patch", "update"]),
    ]


def _daemon(
    own: t.Mapping[str, str], container: Plain, paths: t.Mapping[str, str], told: str, place: t.Mapping[str, t.Any]
) -> Plain:
    folders = {
        "cni": (paths["cni_conf"], "/host/etc/cni/net.d", None),
        # The daemon needs the plugins' folder under its path on the node.
        "cni-bin": (paths["cni_bin_parent"], paths["cni_bin_parent"], "HostToContainer"),
        "run": ("/run", "/host/run", None),
        "multus-cache": ("/var/lib/cni/multus", "/var/lib/cni/multus", None),
        "kubelet": ("/var/lib/kubelet", "/var/lib/kubelet", "HostToContainer"),
        "device-info": ("/run/k8s.cni.cncf.io", "/run/k8s.cni.cncf.io", None),
        "netns": ("/run/netns", "/run/netns", "HostToContainer"),
        "node": ("/", "/hostroot", "HostToContainer"),
        "multus-conf": ("/etc/cni/multus/net.d", "/etc/cni/multus/net.d", None),
    }
    volumes: list[Plain] = [
        {"name": name, "hostPath": {"path": path} | ({} if path == "/" else {"type": "DirectoryOrCreate"})}
        for name, (path, _where, _propagation) in folders.items()
    ]
    volumes.append({"name": "config", "configMap": {"name": NAME}})
    mounts: list[Plain] = [
        {"name": name, "mountPath": where} | ({"mountPropagation": propagation} if propagation else {})
        for name, (_path, where, propagation) in folders.items()
    ]
    mounts.append({"name": "config", "mountPath": "/etc/cni/net.d/multus.d", "readOnly": True})
    program = "/usr/src/multus-cni/bin"
    privileged = {"privileged": True}
    install = {
        **container,
        "name": "install",
        "command": [f"{program}/install_multus", "-d", paths["cni_bin"], "-t", "thick"],
        "securityContext": privileged,
        "volumeMounts": [mount for mount in mounts if mount["name"] == "cni-bin"],
    }
    daemon = {
        **container,
        "name": "multus",
        "command": [f"{program}/multus-daemon"],
        "env": [{"name": "MULTUS_NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "securityContext": privileged,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
    spec = {
        "hostNetwork": True,
        "hostPID": True,
        "priorityClassName": "system-node-critical",
        "enableServiceLinks": False,
        "serviceAccountName": NAME,
        "terminationGracePeriodSeconds": 10,
        # Once Multus is installed, every pod of a node depends on it, so no taint may keep it away.
        "tolerations": [{"operator": "Exists"}],
        "initContainers": [install],
        "containers": [daemon],
        "volumes": volumes,
        **place,
    }
    template = {"metadata": {"labels": dict(own), "annotations": {f"{MANAGER}/config": told}}, "spec": spec}
    body = {
        "selector": {"matchLabels": {PART: "multus"}},
        **rolling(),
        "template": template,
    }
    return thing("apps/v1", "DaemonSet", NAME, SYSTEM, own, spec=body)
