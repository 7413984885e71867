# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: k3s_plan
short_description: Plan K3s for one node
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns what a node is of the cluster, its C(config.yaml), which files of the release it needs and where they come
    from, whether it differs, and what forbids it.
  - The networks of pods and services are those that the fabric's plan keeps clear
    (C(dgxspark_fabric.reserved_networks)).
  - Of each host it reads the variables C(k3s_node_ip) and C(ansible_host).
positional: given, hostvars, knowledge_dirs
options:
  _input:
    description: The host's name, usually C(inventory_hostname).
    type: str
    required: true
  given:
    description: >-
      C(settings) (the variables of the role k3s, without their prefix), C(servers) and C(agents) (hosts in order),
      C(fabric) (C(dgxspark_fabric)), C(sparks) (the fabric's hosts), C(machine) (what M(dgxspark.cluster.k3s_info) read of
      the host) and C(server) (what it read of the first server). Without C(machine) the plan ends where a node's facts begin.
    type: dict
    required: true
  hostvars:
    description: Ansible's C(hostvars).
    type: dict
    required: true
  knowledge_dirs:
    description: The owner's folders of knowledge.
    type: list
    elements: str
    default: []
requirements:
  - jsonschema (Python library, on the controller)
"""

EXAMPLES = r"""
- name: Show what a node's K3s would be configured with
  ansible.builtin.debug:
    msg: "{{ plan.config }}"
  vars:
    plan: "{{ inventory_hostname | dgxspark.cluster.k3s_plan(given, hostvars) }}"
    given:
      settings: {version: v1.36.4+k3s1, source: https://mirror.example/k3s}
      servers: "{{ groups['k3s_server'] }}"
      agents: "{{ groups['k3s_agent'] }}"
      machine: "{{ node.machine }}"
"""

RETURN = r"""
_value:
  description: The plan.
  type: dict
  contains:
    seen:
      description: Whether the plan is whole. It is not where something forbids it early, or the node was not read.
      type: bool
      returned: always
    refusals:
      description: What forbids it, as sentences.
      type: list
      elements: str
      returned: when the groups or the node were judged
    warnings:
      description: What the owner should know.
      type: list
      elements: str
      returned: when the groups or the node were judged
    findings:
      description: Both, each with C(id), C(severity), C(subject), C(message) and C(remedy).
      type: list
      elements: dict
      returned: when the groups or the node were judged
    role:
      description: V(server) or V(agent).
      type: str
      returned: when the groups are sound
    first:
      description: Whether it is the first server, which the others join.
      type: bool
      returned: when the groups are sound
    server:
      description: The first server's name in the inventory.
      type: str
      returned: when the groups are sound
    node_ip:
      description: The node's address on the management network.
      type: str
      returned: when whole
    url:
      description: Where the cluster's API is.
      type: str
      returned: when whole
    step:
      description: V(install), V(keep), V(upgrade) or V(refused).
      type: str
      returned: when whole
    config:
      description: C(config.yaml) as data; C(text) is the same as it is written.
      type: dict
      returned: when whole
    fetch:
      description: The release's files that the node lacks, each with C(name), C(from) and whether that is a C(url).
      type: list
      elements: dict
      returned: when whole
    changed:
      description: Whether the node differs from the plan.
      type: bool
      returned: when whole
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"k3s_plan": as_filter("k3s_plan", "kube.k3s:plan_of_inventory")}
