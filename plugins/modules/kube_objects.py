#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kube_objects
short_description: List a cluster's objects of several kinds in one step
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Lists objects as M(kubernetes.core.k8s_info) does, but several kinds in one step, and without a process for each.
  - For a kind that the cluster does not have, it returns no objects. Fails if the API cannot be reached.
  - Runs on the controller through its action plugin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.kube
options:
  kinds:
    description: What to list.
    type: list
    elements: dict
    required: true
    suboptions:
      api_version:
        description: The API's version.
        type: str
        default: v1
      kind:
        description: The kind.
        type: str
        required: true
      name:
        description: Only the object of this name.
        type: str
      namespace:
        description: Overrides O(namespace).
        type: str
      label_selectors:
        description: Overrides O(label_selectors).
        type: list
        elements: str
  namespace:
    description: The namespace of the objects. Without it, all namespaces.
    type: str
  instance:
    description: Only the objects of this instance, which are then returned in RV(kept), too.
    type: str
  label_selectors:
    description: Labels that the objects must have.
    type: list
    elements: str
    default: []
seealso:
  - module: kubernetes.core.k8s_info
"""

EXAMPLES = r"""
- name: See the nodes and what runs on them
  dgxspark.cluster.kube_objects:
    kinds:
      - kind: Node
      - kind: Pod
        namespace: dgx-serving
  register: cluster
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
found:
  description: The objects of each of O(kinds), in the same order.
  type: list
  elements: list
  returned: success
objects:
  description: All of them in one list.
  type: list
  elements: dict
  returned: success
kept:
  description: >-
    The objects of O(instance) in the format of M(dgxspark.cluster.kube_serving), which M(dgxspark.cluster.kube_change) accepts, so that it
    can be served again; C(head) is empty where nothing is served.
  type: dict
  returned: with O(instance)
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

KIND: dict[str, dict[str, object]] = {
    "api_version": {"type": "str", "default": "v1"},
    "kind": {"type": "str", "required": True},
    "name": {"type": "str"},
    "namespace": {"type": "str"},
    "label_selectors": {"type": "list", "elements": "str"},
}
ARGUMENTS: dict[str, dict[str, object]] = {
    "kinds": {"type": "list", "elements": "dict", "required": True, "options": KIND},
    "namespace": {"type": "str"},
    "instance": {"type": "str"},
    "label_selectors": {"type": "list", "elements": "str", "default": []},
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
