# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a VF gets into a pod: names of network attachments and resources, the attachments themselves, what is missing.

One attachment for each function × VF index. The host-device plugin finds the VF by its PCI address, which stays valid while the
interface is in a pod. If the SR-IOV device plugin allocates the VF, Multus fills in the address, so one attachment fits all
nodes. Otherwise the attachment contains the address; if that differs between nodes, or a run has not seen all of them, each node
has its own attachment, so a run never writes an attachment whose contents it does not know.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    CollectionError,
    PlannedFunction,
    PlannedHost,
    PlannedVf,
    from_plain,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import MANAGER, PART, Plain, labels, thing

NAD_API = "k8s.cni.cncf.io/v1"
NETWORKS = "k8s.v1.cni.cncf.io/networks"
RESOURCE = "k8s.v1.cni.cncf.io/resourceName"
CNI_VERSION = "1.0.0"  # the first with CHECK in lists that all parts here support (Multus 4, plugins 1.1 and newer)
# Inside the pod as on the host: no function answers ARP for its twin (see the fabric guide).
SYSCTLS = {"arp_ignore": "1", "arp_announce": "2", "rp_filter": "2"}


def hosts(fabric: t.Mapping[str, t.Any] | None) -> dict[str, PlannedHost]:
    """Return the fabric plan's hosts by name; CollectionError for anything but a plan."""
    if fabric is not None and not isinstance(fabric, t.Mapping):
        raise CollectionError(f"fabric: the plan's hosts are needed as a dictionary, not {type(fabric).__name__}.")
    return {name: from_plain(PlannedHost, entry, f"fabric.{name}") for name, entry in (fabric or {}).items()}


def rails(host: PlannedHost, index: int) -> list[tuple[PlannedFunction, PlannedVf]]:
    """Return the functions with their VF of one index, in order."""
    return [(function, vf) for function in host.functions for vf in function.vfs if vf.index == index]


def vf_name(function: PlannedFunction, vf: PlannedVf) -> str:
    """Return a VF's name, the same everywhere: `p0f1v0`."""
    return f"{function.slot}v{vf.index}"


def resource(name: str) -> str:
    """Return the name of a VF's extended resource."""
    return f"{MANAGER}/{name}"


def pci(host: str, function: PlannedFunction, vf: PlannedVf) -> str:
    """Return a VF's PCI address; CollectionError if no run has read it yet."""
    if vf.pci is None:
        raise CollectionError(
            f"{host}: {vf_name(function, vf)}: its PCI address is not known. Create the VFs and gather roce_info "
            "first: it is read from the node."
        )
    return vf.pci


def _attachments(
    planned: t.Mapping[str, PlannedHost], indexes: t.Collection[int], plugin: bool, needed: t.Collection[str]
) -> dict[str, dict[str, tuple[str, Plain]]]:
    """Return VF name → host → name and CNI configuration of its attachment.

    needed: hosts whose VFs must have a known PCI address; unknown VFs of other hosts, which this run has not seen, are left out.
    """
    found: dict[str, dict[str, Plain]] = {}
    open_ = set()  # VFs without a known address on every node
    for host in planned.values():
        for index in sorted(indexes):
            for function, vf in rails(host, index):
                if not plugin and vf.pci is None and host.name not in needed:
                    open_.add(vf_name(function, vf))
                    continue
                device = {} if plugin else {"pciBusID": pci(host.name, function, vf)}
                found.setdefault(vf_name(function, vf), {})[host.name] = _configuration(device, vf.mtu)
    return {
        name: {
            host: (
                name
                if name not in open_ and all(conf == other for other in by_host.values())
                else f"{name}-{host.replace('.', '-')}",
                conf,
            )
            for host, conf in by_host.items()
        }
        for name, by_host in found.items()
    }


def _configuration(device: Plain, mtu: int) -> Plain:
    return {
        "cniVersion": CNI_VERSION,
        "plugins": [
            {"type": "host-device", **device, "capabilities": {"ips": True}, "ipam": {"type": "static"}},
            {
                "type": "tuning",
                "mtu": mtu,
                "sysctl": {f"net.ipv4.conf.IFNAME.{key}": value for key, value in SYSCTLS.items()},
            },
        ],
    }


def attachment_names(planned: t.Mapping[str, PlannedHost], host: str, index: int, plugin: bool) -> list[str]:
    """Return the names of a host's attachments of one VF index, in the order of functions."""
    made = _attachments(planned, [index], plugin, [host])
    return [made[vf_name(function, vf)][host][0] for function, vf in rails(planned[host], index)]


def attachments(
    planned: t.Mapping[str, PlannedHost],
    indexes: t.Collection[int],
    namespace: str,
    plugin: bool,
    needed: t.Collection[str],
) -> list[Plain]:
    """Return the NetworkAttachmentDefinitions of these VF indexes. plugin: the SR-IOV device plugin allocates the VFs."""
    objects: dict[str, Plain] = {}
    for name, by_host in _attachments(planned, indexes, plugin, needed).items():
        for own, conf in by_host.values():
            config = json.dumps({**conf, "name": own}, sort_keys=True)
            made = thing(
                NAD_API,
                "NetworkAttachmentDefinition",
                own,
                namespace,
                labels(**{PART: "networks"}),
                spec={"config": config},
            )
            if plugin:
                made["metadata"]["annotations"] = {RESOURCE: resource(name)}
            objects[own] = made
    return list(objects.values())


def needed(objects: t.Iterable[t.Mapping[str, t.Any]]) -> set[tuple[str, str]]:
    """Return namespace and name of every attachment that the pods of these objects request."""
    asked = set()
    for each in objects:
        template = (each.get("spec") or {}).get("template") or {}
        annotation = ((template.get("metadata") or {}).get("annotations") or {}).get(NETWORKS)
        for network in from_json(annotation) if annotation else ():
            asked.add((network.get("namespace") or each["metadata"]["namespace"], network["name"]))
    return asked


def missing(objects: t.Iterable[t.Mapping[str, t.Any]], there: t.Iterable[t.Mapping[str, t.Any]]) -> list[str]:
    """Return a message for each attachment that pods request and that neither exists nor is about to be created."""
    known = {
        (each["metadata"]["namespace"], each["metadata"]["name"])
        for each in there
        if each.get("kind") == "NetworkAttachmentDefinition"
    }
    return [
        f"NetworkAttachmentDefinition {namespace}/{name} does not exist, so a rank would stay in ContainerCreating. "
        "Set k8s_platform_parts.networks to present, and run the platform part with the same -l; or create it."
        for namespace, name in sorted(needed(objects) - known)
    ]
