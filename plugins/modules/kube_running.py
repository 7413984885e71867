#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kube_running
short_description: Find what an instance of a model server runs, on which hosts, and where it answers
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Reads the stateful sets, pods and services of one instance, and returns what M(dgxspark.cluster.nccl_transport) takes to read
    the logs of its ranks, and what M(dgxspark.cluster.serving_canary) takes to query it.
  - Fails if the API cannot be reached or the instance does not exist.
  - Runs on the controller through its action plugin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.kube
  - dgxspark.cluster.kube.instance
options:
  node_names:
    description: A host's Kubernetes node name, if it differs.
    type: dict
    default: {}
seealso:
  - module: dgxspark.cluster.kube_wait
"""

EXAMPLES = r"""
- name: See what runs
  dgxspark.cluster.kube_running:
    namespace: dgx-serving
    instance: default
  register: running
  run_once: true
  delegate_to: localhost

- name: Verify that every rank uses RoCE
  dgxspark.cluster.nccl_transport:
    pods: "{{ running.pods }}"
    world_size: "{{ running.ranks }}"
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
ranks:
  description: How many ranks it should have.
  type: int
  returned: success
hosts:
  description: The hosts of the ranks that have a pod, in rank order.
  type: list
  elements: str
  returned: success
pods:
  description: The option O(dgxspark.cluster.nccl_transport#module:pods) for the logs of its ranks.
  type: dict
  returned: success
groups:
  description: >-
    The option O(dgxspark.cluster.serving_canary#module:groups) for it. Empty if its service cannot be reached from outside the
    cluster.
  type: list
  elements: dict
  returned: success
requests:
  description: How many requests its plan processes at once, or null if it was started without stating this.
  type: int
  returned: success
inside:
  description: Where a pod of the cluster reaches the model, or null.
  returned: success
  type: str
secret:
  description: The name of the Secret with the key that the API requires, or null if it requires none.
  returned: success
  type: str
unreached:
  description: Why RV(groups) is empty.
  type: str
  returned: success
image:
  description: >-
    Which image its ranks run, as their containers report it - C(name), C(digest), C(digests) by host, and C(problems) if they
    differ or are not the image pulled first.
  type: dict
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "namespace": {"type": "str", "required": True},
    "instance": {"type": "str", "required": True},
    "node_names": {"type": "dict", "default": {}},
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
