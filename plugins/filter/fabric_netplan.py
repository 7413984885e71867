# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: fabric_netplan
short_description: Make a host's netplan file of its part of the fabric plan
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Every VF is matched by the MAC that is set for it and gets its address and MTU; every function gets its MTU alone.
    All are optional, without DHCP and link-local addresses.
  - Where names are the usual ones (C(en…)), a VF is matched by its name's beginning as well. netplan otherwise makes a
    C(.link) file that replaces the system's own for that VF, which then loses its name at the next boot.
positional: renderer
options:
  _input:
    description: One host of the plan, C(dgxspark_plan.hosts[inventory_hostname]).
    type: dict
    required: true
  renderer:
    description:
      - What the node's netplan uses, C(dgxspark_roce.netplan.renderer). With V(NetworkManager) each stanza names it;
        otherwise no stanza names any, which means networkd.
    type: str
"""

EXAMPLES = r"""
- name: Show the file
  ansible.builtin.debug:
    msg: "{{ (dgxspark_plan.hosts[inventory_hostname] | dgxspark.cluster.fabric_netplan).content }}"
"""

RETURN = r"""
_value:
  description: Arguments for M(dgxspark.cluster.netplan_vf).
  type: dict
  contains:
    content:
      description: The file's text.
      type: str
    devices:
      description: The interfaces that it configures, with their planned addresses and MTU.
      type: list
      elements: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


def fabric_netplan(planned: t.Any, renderer: str | None = None) -> dict[str, t.Any]:
    """Return text and devices for a planned host."""
    from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.netplan import planned_devices
    from ansible_collections.dgxspark.cluster.plugins.module_utils.values import PlannedHost, from_plain
    from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.netplan_file import content

    host = from_plain(PlannedHost, planned)
    devices = [
        {"name": device.name, "mac": device.mac, "addresses": device.addresses, "mtu": device.mtu}
        for device in planned_devices(host)
    ]
    return {"content": content(host, renderer), "devices": devices}


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"fabric_netplan": as_filter("fabric_netplan", fabric_netplan)}
