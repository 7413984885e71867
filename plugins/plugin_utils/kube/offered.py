# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the VFs that nodes offer (`allocatable`) with those that they should offer, and say why some are missing.

The SR-IOV device plugin looks for devices once, at its start, and skips a pool that is empty then ("no devices in device pool,
skipping creating resource server", v3.11.0): VFs or HCAs that appear later are offered only after it has restarted.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json, read_in
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Node
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import status
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.platform import SRIOV
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import HOSTNAME, MANAGER, PART, Plain

Object = t.Mapping[str, t.Any]
OTHERS = "the SR-IOV device plugin there is not this collection's, and has not found it. See its log and its ConfigMap."


@dataclass
class Watch:
    """Which plugins to restart, over repeated looks. patience_s: how long a running plugin and its kubelet have."""

    patience_s: float
    restarted: list[str] = field(default_factory=list)  # nodes
    since: dict[tuple[str, str], float] = field(
        default_factory=dict
    )  # when a pod was first seen running with too few VFs offered

    def due(self, found: t.Mapping[str, t.Any], now: float) -> dict[str, str]:
        """Return node → pod of the plugins to restart now, each node once."""
        for node, (_pod, uid) in found["restart"].items():
            self.since.setdefault((node, uid), now)
        late = self._late(found, now)
        made = {node: pod for node, pod in late.items() if node not in self.restarted}
        self.restarted += list(made)
        self.since |= {(node, found["restart"][node][1]): now for node in made}  # the old pod may stay a moment longer
        return made

    def over(self, found: t.Mapping[str, t.Any], now: float) -> bool:
        """Whether waiting is pointless: all plugins run, have been restarted, and have had `patience_s` since."""
        return not found["pending"] and set(self._late(found, now)) == set(found["restart"]) <= set(self.restarted)

    def _late(self, found: t.Mapping[str, t.Any], now: float) -> dict[str, str]:
        return {
            node: pod
            for node, (pod, uid) in found["restart"].items()
            if now - self.since.get((node, uid), now) >= self.patience_s
        }


def offered(
    there: t.Sequence[Object],
    hosts: t.Mapping[str, str],
    ranks: t.Sequence[Object] | None = None,
    facts: t.Mapping[str, Object] | None = None,
) -> Plain:
    """Return `lacking` (a line for each node that offers less than it should), `restart` (by node, name and uid of the plugin's running
    pod) and `pending` (nodes whose plugin is not running yet, which is worth waiting for).

    there: the cluster's Nodes, our daemons' Pods, and the plugin's ConfigMap. hosts: of this run, host → node name. ranks: the
    StatefulSets whose requests count; None: everything in the plugin's files. facts: what roce_info read, by host.
    """
    files = _listed(there)
    asked = {node: set(pools) for node, pools in files.items()} if ranks is None else _asked(ranks)
    nodes = {name: each for each in there if each["kind"] == "Node" for name in _names(each)}
    made: Plain = {"lacking": [], "restart": {}, "pending": []}
    for host, name in hosts.items():
        wanted = asked.get(name) or set()
        node = nodes.get(name)
        if not wanted or node is None:  # a missing node is reported elsewhere
            continue
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        lacking = sorted(each for each in wanted if int(allocatable.get(each) or 0) < 1)
        if not lacking:
            continue
        pod = next((each for each in there if _plugin_of(each, _names(node))), None)
        if pod is not None and status.ready(dict(pod)):
            made["restart"][name] = (str(pod["metadata"]["name"]), str(pod["metadata"].get("uid")))
            why = _why(host, lacking, files.get(name, {}), facts)
        else:
            made["pending"].append(name)
            why = _not_at_work(pod) if pod is not None or files else OTHERS
        made["lacking"].append(f"{host}: node {name} does not offer {', '.join(lacking)}: {why}")
    return made


def _names(node: Object) -> set[str]:
    return {str(node["metadata"]["name"]), str((node["metadata"].get("labels") or {}).get(HOSTNAME, ""))} - {""}


def _listed(there: t.Sequence[Object]) -> dict[str, dict[str, str]]:
    """Return node → resource → PCI address from the plugin's files."""
    found: dict[str, dict[str, str]] = {}
    for each in there:
        if each["kind"] != "ConfigMap" or each["metadata"]["name"] != SRIOV:
            continue
        for name, text in (each.get("data") or {}).items():
            listed = from_json(text)["resourceList"]
            found[name.removesuffix(".json")] = {
                f"{one['resourcePrefix']}/{one['resourceName']}": one["selectors"][0]["pciAddresses"][0]
                for one in listed
            }
    return found


def _asked(ranks: t.Sequence[Object]) -> dict[str, set[str]]:
    """Return node → the VFs that its ranks request."""
    found: dict[str, set[str]] = {}
    for rank in ranks:
        spec = rank["spec"]["template"]["spec"]
        for container in spec["containers"]:
            limits = (container.get("resources") or {}).get("limits") or {}
            names = {name for name in limits if name.startswith(f"{MANAGER}/")}
            found.setdefault(str((spec.get("nodeSelector") or {}).get(HOSTNAME)), set()).update(names)
    return found


def _plugin_of(each: Object, names: t.Collection[str]) -> bool:
    own = (each["metadata"].get("labels") or {}).get(PART) == "sriov_device_plugin"
    return each["kind"] == "Pod" and own and (each.get("spec") or {}).get("nodeName") in names


def _not_at_work(pod: Object | None) -> str:
    if pod is None:
        return f"the SR-IOV device plugin has no pod there. See `kubectl describe daemonset -n kube-system {SRIOV}`."
    name = pod["metadata"]["name"]
    for each in (pod.get("status") or {}).get("containerStatuses") or ():
        waiting = (each.get("state") or {}).get("waiting") or {}
        if waiting.get("reason"):
            return (
                f"the SR-IOV device plugin ({name}) is waiting: {waiting['reason']} {waiting.get('message', '')}".strip()
                + "."
            )
    return f"the SR-IOV device plugin ({name}) is not ready. See `kubectl describe pod -n kube-system {name}`."


def _why(host: str, lacking: t.Sequence[str], pools: t.Mapping[str, str], facts: t.Mapping[str, Object] | None) -> str:
    """Return why the plugin does not offer these VFs, from its file and the node's facts."""
    log = f"See `kubectl logs -n kube-system -l {PART}=sriov_device_plugin` of that node."
    if not facts or host not in facts:
        return f"the SR-IOV device plugin runs, but has not found it. {log}"
    node = read_in(Node, facts[host], f"{host}: roce_info")
    vfs = {vf.pci: vf for function in node.functions for vf in function.vfs}
    for name in lacking:
        pci = pools.get(name)
        if pci is None:
            return f"{name} is not in the plugin's file. Run the platform part again (dgxspark.cluster.site --tags platform)."
        if pci not in vfs:
            return f"the node has no VF {pci}. Run the fabric part again (dgxspark.cluster.site --tags fabric)."
        if vfs[pci].hca is None:
            return (
                f"VF {pci} has no RDMA device. Check that mlx5_ib is loaded there, and that `rdma system` shows netns shared: "
                "in exclusive mode the node does not see a device that a pod once had."
            )
    return f"its VFs and their RDMA devices are there, but the SR-IOV device plugin has not found them. {log}"
