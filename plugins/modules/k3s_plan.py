#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: k3s_plan
short_description: Plan K3s for one node
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns the node's role in the cluster, its C(config.yaml), which release files it needs and where they come from, whether the
    node differs from the plan. Fails if something prevents the change.
  - The pod and service networks are those that the fabric plan avoids (C(dgxspark_fabric.reserved_networks)).
  - It reads the variables of the role P(dgxspark.cluster.k3s#role) and C(dgxspark_fabric), the inventory's groups, and for each
    server C(k3s_node_ip) and C(ansible_host).
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  machine:
    description: >-
      What M(dgxspark.cluster.k3s_info) read from the host. Without it, the plan covers only what needs no facts from the node.
    type: dict
  server:
    description: What it read from the first server, if the limit excludes that.
    type: dict
  joined:
    description: What M(dgxspark.cluster.k3s_join) read of the cluster that the nodes join, if the inventory does not manage it.
    type: dict
  archives:
    description: What M(ansible.builtin.stat) returned for each of C(k3s_image_archives) on the controller, as C(results).
    type: list
    elements: dict
    default: []
requirements:
  - jsonschema, netaddr and packaging (Python libraries, on the controller)
seealso:
  - module: dgxspark.cluster.k3s_join
  - module: dgxspark.cluster.k3s_turns
  - module: dgxspark.cluster.k3s_ready
"""

EXAMPLES = r"""
- name: Plan K3s
  dgxspark.cluster.k3s_plan:
    machine: "{{ node.machine }}"
  register: plan

- name: Show what the node's K3s would be configured with
  ansible.builtin.debug:
    msg: "{{ plan.config }}"
"""

RETURN = r"""
seen:
  description: Whether the plan is complete. It is not if the node was not read.
  type: bool
  returned: success
notes:
  description: What the owner should know.
  type: list
  elements: str
  returned: when the groups or the node were judged
findings:
  description: What prevents the change, and RV(notes), each with C(id), C(severity), C(subject), C(message) and C(remedy).
  type: list
  elements: dict
  returned: when the groups or the node were judged
role:
  description: V(server) or V(agent).
  type: str
  returned: when the groups are valid
first:
  description: Whether it is the first server, which the others join.
  type: bool
  returned: when the groups are valid
server:
  description: The first server's name in the inventory; empty if the nodes join another cluster.
  type: str
  returned: when the groups are valid
node_ip:
  description: The node's address on the management network.
  type: str
  returned: when the plan is complete
url:
  description: The URL of the cluster's API.
  type: str
  returned: when the plan is complete
step:
  description: V(install), V(keep) or V(upgrade).
  type: str
  returned: when the plan is complete
config:
  description: C(config.yaml) as data; C(text) is the file as it is written.
  type: dict
  returned: when the plan is complete
fetch:
  description: The release's files that the node lacks, each with C(name), C(from) and whether that is a C(url).
  type: list
  elements: dict
  returned: when the plan is complete
differs:
  description: Whether the node differs from the plan.
  type: bool
  returned: when the plan is complete
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "machine": {"type": "dict"},
    "server": {"type": "dict"},
    "joined": {"type": "dict"},
    "archives": {"type": "list", "elements": "dict", "default": []},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
