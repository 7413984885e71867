#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: serving_request
short_description: Say how to ask the model that is served
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Prints the model's URL and name, a C(curl), a line of Python, where the API key is, and the command that measures it. The key
    itself is neither read nor shown.
  - Runs on the controller through its action plugin, and asks nothing of the model or the cluster.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  running:
    description: What M(dgxspark.cluster.kube_running) returned.
    type: dict
    required: true
  plan:
    description: The plan of M(dgxspark.cluster.launch_plan).
    type: dict
    required: true
  instance:
    description: The instance's name.
    type: str
    default: default
  has_key:
    description: Whether the API requires a key.
    type: bool
    default: false
  key_file:
    description: The file on the controller that has the key, if it is in one.
    type: str
    default: ""
  kubectl:
    description: Options of a C(kubectl) that it prints, such as C(--kubeconfig) and its path.
    type: list
    elements: str
    default: []
seealso:
  - module: dgxspark.cluster.kube_running
"""

EXAMPLES = r"""
- name: Say how to ask the model
  dgxspark.cluster.serving_request:
    running: "{{ running }}"
    plan: "{{ k8s_dgx_plan }}"
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
    "running": {"type": "dict", "required": True},
    "plan": {"type": "dict", "required": True},
    "instance": {"type": "str", "default": "default"},
    "has_key": {"type": "bool", "default": False},
    "key_file": {"type": "str", "default": "", "no_log": False},
    "kubectl": {"type": "list", "elements": "str", "default": []},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
