# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of the fabric's netplan file, dumped on the controller so that the nodes need no YAML library."""

from __future__ import annotations

import typing as t

import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import netplan
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    Change,
    Finding,
    Netplan,
    Node,
    PlannedHost,
    from_plain,
)


def content(planned: PlannedHost, renderer: str | None = None) -> str:
    """Return the file's text for a host. renderer: what the node uses (`networkd`, `NetworkManager`, None)."""
    return netplan.HEADER + str(yaml.safe_dump(netplan.render(planned, renderer), sort_keys=False, width=120))


def changes(node: Node, planned: PlannedHost, path: str = netplan.PATH) -> list[Change]:
    """Return what netplan_vf would change on a node, from roce_info's facts."""
    named = netplan.with_names(planned, node.netplan, path)
    return netplan.drift(node, named, content(named, node.netplan.renderer), path=path)


def refusals(node: Node, planned: PlannedHost, path: str, foreign_stanzas: str) -> list[Finding]:
    """Return why netplan_vf would not write its file, from roce_info's facts."""
    named = netplan.with_names(planned, node.netplan, path)
    text = content(named, node.netplan.renderer)
    return netplan.refusals(node, named, text, path=path, foreign_stanzas=foreign_stanzas)


def file_of(planned: t.Any, there: Netplan | None = None, path: str = netplan.PATH) -> dict[str, t.Any]:
    """Return `content` and `devices` (name, MAC, addresses, MTU) as the module netplan_vf takes them.

    planned: a host of the plan in plain form. there: netplan on that host, as far as known. Raises CollectionError if the plan is malformed.
    """
    there = there or Netplan()
    host = netplan.with_names(from_plain(PlannedHost, planned), there, path)
    devices = [
        {"name": device.name, "mac": device.mac, "addresses": list(device.addresses), "mtu": device.mtu}
        for device in netplan.planned_devices(host)
    ]
    return {"content": content(host, there.renderer), "devices": devices}
