#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kube_pull
short_description: Pull an engine's image on all nodes of a plan, before anything is stopped
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - A node that lists the image, with its digest, needs nothing. On each of the others a pod requests it as the rank
    there would - with the same name, pull policy and secrets - and runs nothing in it. The pods are always deleted
    afterwards.
  - For each node that cannot get it, gives the cause from its kubelet and the remedy. With a transient cause (a registry that does
    not answer), it waits until two minutes after the kubelet's last attempt.
  - Refuses nodes that have different images under one name, and an image whose digest is not that of the first pull, recorded in
    the namespace's ConfigMap C(dgxspark-images).
  - In check mode it says which nodes lack the image, and creates no pod.
  - Runs on the controller through its action plugin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.kube
options:
  served:
    description: The instance as M(dgxspark.cluster.kube_serving) returns it.
    type: dict
    required: true
  accept:
    description: Accept a digest that differs from the recorded one.
    type: bool
    default: false
  timeout:
    description: Seconds that all pulls together may take.
    type: int
    default: 7200
seealso:
  - module: dgxspark.cluster.kube_wait
"""

EXAMPLES = r"""
- name: Pull the image on every node
  dgxspark.cluster.kube_pull:
    served: "{{ served }}"
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
image:
  description: The image as ranks request it.
  type: str
  returned: success
digest:
  description: The image's digest, the same on all nodes. None in check mode if no node has the image.
  type: str
  returned: success
digests:
  description: The digest by host.
  type: dict
  returned: success
lacking:
  description: Hosts whose node did not list it.
  type: list
  elements: str
  returned: success
pulled:
  description: Hosts whose kubelet pulled it.
  type: list
  elements: str
  returned: success
record:
  description: The ConfigMap that records the digests, to be applied.
  type: dict
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "served": {"type": "dict", "required": True},
    "accept": {"type": "bool", "default": False},
    "timeout": {"type": "int", "default": 7200},
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
