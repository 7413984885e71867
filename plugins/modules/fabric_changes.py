#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_changes
short_description: Show what the fabric's roles would change on a node, and what prevents it
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Compares the host's part of the plan (C(dgxspark_plan)) with what M(dgxspark.cluster.roce_info) read from it
    (C(dgxspark_roce)), without contacting the node. A node that is as planned needs no further remote step.
  - V(sriov) looks at functions and VFs, and at the files and units that restore them. Those must have been requested from
    M(dgxspark.cluster.roce_info), otherwise they count as absent; the role P(dgxspark.cluster.sriov_roce#role) knows which.
  - V(netplan) looks at netplan's file and its mode, an unconfirmed change, stanzas of other files for the same interfaces, and
    addresses and MTU of interfaces on the host. It also returns the planned file.
  - In that file every VF is matched by the MAC that is set for it and gets its address and MTU; every function gets only its MTU.
    All are optional, without DHCP and link-local addresses.
  - Where names are the usual ones (C(en…)), a VF is also matched by the prefix of its name. Otherwise netplan generates a C(.link)
    file that replaces the system's default one for that VF, which then loses its name at the next boot.
  - With NetworkManager a VF is matched by its exact name, because C(netplan apply) finds no device by a pattern, and the old addresses
    would stay. A VF that is in a pod keeps the name that the file has.
  - A finding with severity V(info) names each other interface that C(netplan apply) takes down for a while (a connection of
    NetworkManager, or Wi-Fi, that is in netplan's files).
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  parts:
    description: What to compare.
    type: list
    elements: str
    choices: [sriov, netplan]
    default: [sriov, netplan]
  trust:
    description: Whether VFs are trusted. Without it, this is left alone.
    type: bool
  spoof_check:
    description: Whether a VF's source MAC is checked. Without it, this is left alone.
    type: bool
  reset_stranded:
    description: Whether VFs in dead namespaces are freed.
    type: bool
    default: false
  path:
    description: The netplan file.
    type: str
    default: /etc/netplan/90-dgxspark-fabric.yaml
  foreign_stanzas:
    description: Whether stanzas of other netplan files for the same interfaces are a reason to refuse, or absorbed.
    type: str
    choices: [refuse, absorb]
    default: refuse
seealso:
  - plugin: dgxspark.cluster.fabric_plan
    plugin_type: filter
  - module: dgxspark.cluster.sriov_vf
  - module: dgxspark.cluster.netplan_vf
"""

EXAMPLES = r"""
- name: Determine what would change
  dgxspark.cluster.fabric_changes:
  register: difference

- name: Show it
  ansible.builtin.debug:
    msg: "{{ difference.changes }}"
"""

RETURN = r"""
changes:
  description: The differences, each with C(subject), C(what), C(before) and C(after). Empty when there is nothing to do.
  type: list
  elements: dict
  returned: success
findings:
  description: >-
    Findings, each with C(id), C(severity), C(subject), C(message) and C(remedy). If one has severity V(error),
    M(dgxspark.cluster.sriov_vf) or M(dgxspark.cluster.netplan_vf) would refuse the change.
  type: list
  elements: dict
  returned: success
netplan:
  description: The C(content) and the C(devices) of the file, as M(dgxspark.cluster.netplan_vf) takes them.
  type: dict
  returned: with V(netplan) in O(parts)
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "parts": {"type": "list", "elements": "str", "choices": ["sriov", "netplan"], "default": ["sriov", "netplan"]},
    "trust": {"type": "bool"},
    "spoof_check": {"type": "bool"},
    "reset_stranded": {"type": "bool", "default": False},
    "path": {"type": "str", "default": "/etc/netplan/90-dgxspark-fabric.yaml"},
    "foreign_stanzas": {"type": "str", "choices": ["refuse", "absorb"], "default": "refuse"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
