# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: fabric_netplan_changes
short_description: Tell what netplan_vf would change on a node
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Compares what M(dgxspark.cluster.roce_info) has read of a node with its part of the fabric plan, without reaching
    the node. It looks at netplan's file and its mode, an unconfirmed change, stanzas of other files for the same
    interfaces, and addresses and MTU of interfaces on the host.
positional: planned, path
options:
  _input:
    description: What C(roce_info) returned, C(dgxspark_roce).
    type: dict
    required: true
  planned:
    description: One host of the plan, C(dgxspark_plan.hosts[inventory_hostname]).
    type: dict
    required: true
  path:
    description: The netplan file.
    type: str
    default: /etc/netplan/90-dgxspark-fabric.yaml
"""

EXAMPLES = r"""
- name: Show what would change
  ansible.builtin.debug:
    msg: "{{ dgxspark_roce | dgxspark.cluster.fabric_netplan_changes(dgxspark_plan.hosts[inventory_hostname]) }}"
"""

RETURN = r"""
_value:
  description: The differences, each with C(subject), C(what), C(before) and C(after). Empty when nothing is to do.
  type: list
  elements: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.netplan import PATH
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Change, Node, PlannedHost, from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.netplan_file import changes
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.front import as_filter


def fabric_netplan_changes(node: t.Any, planned: t.Any, path: str = PATH) -> list[Change]:
    """Return the differences for one host."""
    return changes(from_plain(Node, node), from_plain(PlannedHost, planned), path)


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"fabric_netplan_changes": as_filter("fabric_netplan_changes", fabric_netplan_changes)}
