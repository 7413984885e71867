#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kube_serving
short_description: Build Kubernetes objects for a planned launch
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns everything that serves one instance, from one pod template - a StatefulSet of one pod for each rank, pinned to
    its node with that rank's VF addresses, its files, services, disruption budget and priority class. Applies nothing.
  - Nothing that the launch plan decides is recomputed, and the result contains no secret.
  - The hosts' VFs are those of the fabric's plan, C(dgxspark_plan), which is needed for more than one rank.
  - Runs on the controller through its action plugin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  plan:
    description: The plan as M(dgxspark.cluster.launch_plan) returns it.
    type: dict
    required: true
  kubernetes:
    description: >-
      The owner's choices. C(namespace); C(attachment) (V(vf) or V(host)); C(rdma) (V(device_plugin) or V(privileged)); C(image),
      C(image_pull), C(image_pull_secrets); C(node_names), a host's Kubernetes node name; C(runtime_class) and C(gpu_resource), null
      for none; C(requests) of CPU and memory; C(shm); C(cache_dir) on the nodes; C(hf_token_secret), a Secret with the key
      C(token); C(api_key_secret), one with the key C(key), which the API then requires; C(service_type), C(service_port);
      C(api_ports), those of API servers, which closed ranks with VFs reach; C(peers_timeout_s), C(lost_after_s), C(hang_after_s),
      C(load_timeout_s); C(max_unavailable) of the disruption budget; C(priority).
    type: dict
    default: {}
seealso:
  - module: dgxspark.cluster.kube_change
requirements:
  - jsonschema and netaddr (Python libraries, on the controller)
"""

EXAMPLES = r"""
- name: Build the ranks' objects
  dgxspark.cluster.kube_serving:
    plan: "{{ k8s_dgx_plan }}"
  register: served
  run_once: true

- name: Show what each rank would be
  ansible.builtin.debug:
    msg: "{{ (served.workers + served.head) | map(attribute='spec.template') }}"
"""

RETURN = r"""
common:
  description: The objects to apply first.
  type: list
  elements: dict
  returned: success
workers:
  description: The ranks to apply next.
  type: list
  elements: dict
  returned: success
head:
  description: The first rank, to apply last.
  type: list
  elements: dict
  returned: success
name:
  description: The prefix of its objects' names.
  type: str
  returned: success
namespace:
  description: The instance's namespace.
  type: str
  returned: success
instance:
  description: The instance.
  type: str
  returned: success
plan:
  description: The checksum of everything that the ranks are started with.
  type: str
  returned: success
nodes:
  description: The node of each host.
  type: dict
  returned: success
bounds:
  description: Seconds that its start may take.
  type: dict
  returned: success
needs:
  description: The free memory in GiB that the plan needs on each node.
  type: dict
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "plan": {"type": "dict", "required": True},
    "kubernetes": {"type": "dict", "default": {}},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
