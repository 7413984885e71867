# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: fabric_changes
short_description: Tell what the roles of the fabric would change on a node
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Compares one host of the plan with what M(dgxspark.cluster.roce_info) has read of it, without reaching the node.
  - The files and units that C(sriov_roce) keeps on a node must be among those that were read, else they count as absent.
positional: node, options, parts, path
options:
  _input:
    description: One host of the plan, C(dgxspark_plan.hosts[inventory_hostname]).
    type: dict
    required: true
  node:
    description: What C(roce_info) returned, C(dgxspark_roce).
    type: dict
    required: true
  options:
    description: Of the VFs, C(trust), C(spoof_check) (null leaves them alone) and C(reset_stranded).
    type: dict
    default: {}
  parts:
    description: What to compare, V(sriov) for functions and VFs, V(netplan) for addresses.
    type: list
    elements: str
    choices: [sriov, netplan]
    default: [sriov, netplan]
  path:
    description: The netplan file.
    type: str
    default: /etc/netplan/90-dgxspark-fabric.yaml
"""

EXAMPLES = r"""
- name: Show what would change
  ansible.builtin.debug:
    msg: "{{ dgxspark_plan.hosts[inventory_hostname] | dgxspark.cluster.fabric_changes(dgxspark_roce) }}"
"""

RETURN = r"""
_value:
  description: The differences, each with C(subject), C(what), C(before) and C(after). Empty when nothing is to do.
  type: list
  elements: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.changes import changes
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.front import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"fabric_changes": as_filter("fabric_changes", changes)}
