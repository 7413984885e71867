# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: fabric_changes
short_description: Tell what the roles of the fabric would change on a node, and what speaks against it
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Compares one host of the plan with what M(dgxspark.cluster.roce_info) has read of it, without reaching the node. A
    node that is as planned needs no further remote step.
  - V(sriov) looks at functions and VFs, and at the files and units that restore them. Those must have been asked for,
    else they count as absent; the role P(dgxspark.cluster.sriov_roce#role) knows which.
  - V(netplan) looks at netplan's file and its mode, an unconfirmed change, stanzas of other files for the same
    interfaces, and addresses and MTU of interfaces on the host.
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
    description: What to compare.
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
    msg: "{{ (dgxspark_plan.hosts[inventory_hostname] | dgxspark.cluster.fabric_changes(dgxspark_roce)).changes }}"
"""

RETURN = r"""
_value:
  description: The answer.
  type: dict
  contains:
    changes:
      description: The differences, each with C(subject), C(what), C(before) and C(after). Empty when nothing is to do.
      type: list
      elements: dict
    findings:
      description: >-
        What is to be said, each with C(id), C(severity), C(subject), C(message) and C(remedy). With one of severity
        V(error), M(dgxspark.cluster.sriov_vf) would refuse.
      type: list
      elements: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"fabric_changes": as_filter("fabric_changes", "fabric.changes:changes")}
