# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: kube_serving
short_description: Write down a planned launch as Kubernetes objects
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns everything that serves one instance, from one pod template - a StatefulSet of one pod for each rank, pinned to
    its node with that rank's VF addresses, its files, services, disruption budget and priority class.
  - Nothing is computed again that the launch plan decides, and no secret is in the result.
positional: fabric, kubernetes, knowledge_dirs
options:
  _input:
    description: The plan as P(dgxspark.cluster.launch_plan#filter) returns it.
    type: dict
    required: true
  fabric:
    description: The hosts of the fabric plan, by name. Needed for more than one rank.
    type: dict
    default: {}
  kubernetes:
    description: >-
      The owner's choices. C(namespace); C(attachment) (V(vf) or V(host)); C(rdma) (V(device_plugin) or V(privileged));
      C(image), C(image_pull), C(image_pull_secrets); C(node_names), Kubernetes' name of a host; C(runtime_class) and
      C(gpu_resource), null for none; C(requests) of CPU and memory; C(shm); C(cache_dir) on the nodes;
      C(hf_token_secret), a Secret with the key C(token); C(api_key_secret), one with the key C(key), which the API then asks
      for; C(service_type), C(service_port); C(api_ports), those of API servers, which closed ranks with VFs reach; C(peers_timeout_s),
      C(lost_after_s), C(hang_after_s), C(load_timeout_s); C(max_unavailable) of the disruption budget; C(priority).
    type: dict
    default: {}
  knowledge_dirs:
    description: The owner's folders of knowledge, laid over the shipped one.
    type: list
    elements: str
    default: []
requirements:
  - jsonschema (Python library, on the controller)
"""

EXAMPLES = r"""
- name: Show what each rank would be
  ansible.builtin.debug:
    msg: "{{ (served.workers + served.head) | map(attribute='spec.template') }}"
  vars:
    served: "{{ k8s_dgx_plan | dgxspark.cluster.kube_serving(dgxspark_plan.hosts) }}"
"""

RETURN = r"""
_value:
  description: >-
    C(common), C(workers) and C(head), objects in the order in which they are put there; C(name), C(namespace),
    C(instance); C(plan), the checksum of all that the ranks are started with; C(nodes), by host; C(bounds) in seconds;
    C(needs) with the memory in GiB that the plan wants free on each node.
  type: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"kube_serving": as_filter("kube_serving", "kube.serving:serving")}
