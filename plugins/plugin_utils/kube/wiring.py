# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which VFs a rank's pod gets, and on which wire it reaches another: the same for a server's ranks and a benchmark's."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, PlannedHost
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import ip
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import networks, pod
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import Settings


def rails(
    host: str, index: int, planned: t.Mapping[str, PlannedHost], chosen: Settings, where: str = "instance.vf_index"
) -> tuple[pod.Rail, ...]:
    """Return the VFs of one index on a host, as its pod has them. Raises CollectionError if there are none."""
    if host not in planned:
        raise CollectionError(
            f"fabric: {host} is not in the fabric plan, so its ranks have no addresses. First run the fabric part "
            "(sriov_roce), which plans it."
        )
    found = networks.rails(planned[host], index)
    if not found:
        raise CollectionError(
            f"{host}: {where}: the fabric plan has no VF {index} on any function. Choose one of its "
            "indices, or raise dgxspark_fabric.vf_count."
        )
    on_host = chosen.attachment == "host"
    names = (
        [None] * len(found)
        if on_host
        else networks.attachment_names(planned, host, index, chosen.rdma == "device_plugin")
    )
    return tuple(
        pod.Rail(
            name=networks.vf_name(function, vf),
            interface=str(vf.netdev) if on_host else f"net{number}",
            address=vf.address,
            prefix=vf.prefix,
            mtu=vf.mtu,
            hca=vf.hca,
            attachment=attachment,
        )
        for number, ((function, vf), attachment) in enumerate(zip(found, names, strict=True), 1)
    )


def distinct(members: t.Sequence[pod.Member]) -> None:
    """Refuse two ranks on one node: it has one GPU, and one VF of each function for a group."""
    nodes: dict[str, str] = {}
    for member in members:
        other = nodes.setdefault(member.node, member.host)
        if other != member.host or sum(m.node == member.node for m in members) > 1:
            raise CollectionError(
                f"node_names: {other} and {member.host} are both node {member.node!r}. Each rank needs a node of its own."
            )


def subnet(rail: pod.Rail) -> str:
    """Return the subnet of a VF's address: the VFs of one wire share it."""
    return str(ip.network(f"{rail.address}/{rail.prefix}"))


def way_to(head: pod.Member, member: pod.Member, elsewhere: str) -> str:
    """Return the head's address for a rank: on a wire that both share, else (on a ring) `elsewhere`."""
    if member.rank == head.rank:
        return "127.0.0.1"
    own = {subnet(rail) for rail in member.rails}
    shared = [rail.address for rail in head.rails if subnet(rail) in own]
    return shared[0] if shared else elsewhere
