#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: serving_stopped
short_description: Say what was stopped, and what stays
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Prints which model was stopped, on which hosts its ranks ran, what was removed from the cluster, and what stays on the nodes.
  - Runs on the controller through its action plugin, and asks nothing of the cluster.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  objects:
    description: The instance's objects, as M(dgxspark.cluster.kube_objects) returned them before they were removed.
    type: list
    elements: dict
    required: true
  instance:
    description: The instance's name.
    type: str
    default: default
  namespace:
    description: Its namespace.
    type: str
    required: true
  node_names:
    description: The nodes of hosts that have another name.
    type: dict
    default: {}
  weights:
    description: What is done about the model's weights (V(present), V(absent) or V(unmanaged)).
    type: str
    choices: [present, absent, unmanaged]
    default: unmanaged
seealso:
  - module: dgxspark.cluster.kube_objects
  - module: dgxspark.cluster.serving_request
"""

EXAMPLES = r"""
- name: Say what was stopped
  dgxspark.cluster.serving_stopped:
    objects: "{{ found.objects }}"
    namespace: dgx-serving
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
lines:
  description: What was printed.
  type: list
  elements: str
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "objects": {"type": "list", "elements": "dict", "required": True},
    "instance": {"type": "str", "default": "default"},
    "namespace": {"type": "str", "required": True},
    "node_names": {"type": "dict", "default": {}},
    "weights": {"type": "str", "choices": ["present", "absent", "unmanaged"], "default": "unmanaged"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
