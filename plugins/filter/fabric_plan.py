# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: fabric_plan
short_description: Plan the fabric of all hosts of a group
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns for each host the planned functions and VFs, with name, MAC, address, MTU and purpose, and for all hosts
    together their segments, subnets and the pairs that share a segment.
  - The plan is that of all hosts given, whichever of them a play reaches. Addresses and MACs depend on O(settings), the
    hosts' order (or their pinned numbers) and the hardware class alone; a node's facts add names, or refuse the plan.
  - A plan that would not work is refused, with all reasons at once.
  - For each host it reads the variables C(dgxspark_fabric_index), C(dgxspark_fabric_functions), C(dgxspark_roce),
    C(dgxspark_fabric) and C(ansible_host).
positional: settings, hostvars, knowledge_dirs
options:
  _input:
    description: The hosts' names in order, usually C(groups['dgx']).
    type: list
    elements: str
    required: true
  settings:
    description: The variable C(dgxspark_fabric). Its keys are described in the guide to the fabric.
    type: dict
    required: true
  hostvars:
    description: Ansible's C(hostvars).
    type: dict
    required: true
  knowledge_dirs:
    description: The owner's knowledge folders, in which C(settings.hardware) is looked up after the shipped data.
    type: list
    elements: str
    default: []
requirements:
  - netaddr (Python library, on the controller)
  - jsonschema (Python library, on the controller)
"""

EXAMPLES = r"""
- name: Show the address of each host's first VF
  ansible.builtin.debug:
    msg: "{{ plan.hosts | dict2items | map(attribute='value.functions.0.vfs.0.address') }}"
  vars:
    plan: "{{ groups['dgx'] | dgxspark.cluster.fabric_plan(dgxspark_fabric, hostvars) }}"
"""

RETURN = r"""
_value:
  description: The plan.
  type: dict
  contains:
    schema:
      description: The version of this format.
      type: int
      returned: always
      sample: 1
    topology:
      description: The topology.
      type: str
      returned: always
    mtu:
      description: The MTU of all functions and VFs in bytes.
      type: int
      returned: always
    hosts:
      description: >-
        By name, each host's C(index), whether its functions were seen (C(detected)), and its C(functions) with their
        C(slot), C(netdev), C(pci), C(segment), C(mtu), and C(vfs) with C(index), C(purpose), C(mac), C(address),
        C(prefix), C(subnet), C(mtu), and C(netdev), C(pci), C(hca) where the VF was seen.
      type: dict
      returned: always
    segments:
      description: The L2 domains with C(id) and C(members), each a C(host) and a C(port).
      type: list
      elements: dict
      returned: always
    subnets:
      description: >-
        The subnets with C(key) (C(segment/slot/vf)), C(segment), C(slot) (on a cable the function alone, such as V(f0)),
        C(vf) and C(members), the addresses by host.
      type: list
      elements: dict
      returned: always
    pairs:
      description: >-
        Every pair of hosts that shares a segment, C(a) and C(b), with C(paths), each with C(vf), C(purpose), C(slot_a),
        C(slot_b), C(address_a) and C(address_b).
      type: list
      elements: dict
      returned: always
    notes:
      description: What the owner should know about the plan, as sentences.
      type: list
      elements: str
      returned: always
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"fabric_plan": as_filter("fabric_plan", "fabric.inventory:plan_of_inventory", convert=False)}
