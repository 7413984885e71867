#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kube_platform
short_description: Build the Kubernetes objects that a cluster needs before it can serve a model
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns the Kubernetes objects of each part of the platform - the runtime class, NVIDIA's device plugin, Multus, the
    SR-IOV device plugin, and one network attachment for each function and VF index in use. Applies nothing.
  - A part that others have put into the cluster, and that ranks can use, is V(unmanaged); one that is in the way, or that ranks cannot
    use, is a failure that names all reasons. What others own is never among the objects.
  - Versions and digests come from C(knowledge/platform). The hosts are those of the fabric plan, C(dgxspark_plan); a single Spark
    has no plan.
  - Runs on the controller through its action plugin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  kubernetes:
    description: >-
      The owner's choices. C(namespace); C(attachment) (V(vf) or V(host)); C(rdma) (V(device_plugin) or V(privileged)); C(hosts),
      the Sparks of this run, which may be fewer than the fabric plan's (by default all of these); C(parts), a part's state
      (V(present), V(absent) or V(unmanaged)) where it does not follow from the attachment; C(vf_indexes), VFs that pods may get (by
      default all of the plan); C(node_names), a host's Kubernetes node name; C(gpu_shares), instances that may hold one GPU at the
      same time; C(images), a part's image; C(image_pull); C(data_dir), K3s's data folder, which contains its CNI folders;
      C(cni_bin_dir) and C(cni_conf_dir), if they are neither K3s's nor, on nodes without K3s, the usual ones;
      C(hca), V(virtual) where a VF's RDMA device is soft-RoCE (a lab),
      which cannot be requested from the SR-IOV device plugin.
    type: dict
    default: {}
  there:
    description: >-
      What the cluster has: its nodes, the pods of our daemons, and the SR-IOV device plugin's ConfigMap; of others, their DaemonSets,
      the namespace of ranks, the CRD of network attachments, and Cilium's ConfigMap, if there are any. What this run does not see of a
      node is left as it is.
    type: list
    elements: dict
    default: []
seealso:
  - module: dgxspark.cluster.kube_apply
requirements:
  - jsonschema (Python library, on the controller)
"""

EXAMPLES = r"""
- name: Build the platform's objects
  dgxspark.cluster.kube_platform:
    kubernetes: {vf_indexes: [0]}
  register: platform
  run_once: true

- name: Show the network attachments
  ansible.builtin.debug:
    msg: "{{ platform.parts.networks.objects }}"
"""

RETURN = r"""
parts:
  description: >-
    By part, in the order in which they are applied, C(state) and C(objects). The first, C(nodes), with the state V(labelled), are labels
    for the nodes that lack them.
  type: dict
  returned: success
present:
  description: The objects that should exist, in that order.
  type: list
  elements: dict
  returned: success
absent:
  description: The parts that should not exist.
  type: list
  elements: str
  returned: success
used:
  description: A line for each part that others have put into the cluster, and that is used as it is.
  type: list
  elements: str
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "kubernetes": {"type": "dict", "default": {}},
    "there": {"type": "list", "elements": "dict", "default": []},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
