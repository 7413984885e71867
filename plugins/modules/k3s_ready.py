#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: k3s_ready
short_description: Wait until the cluster has the planned nodes
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Queries the cluster with kubectl, or the API from the controller, until each planned node is present and Ready, with the planned release and address,
    and fails with what is wrong when the timeout expires.
  - It runs where kubectl is, and reads the plans that the play's hosts have registered.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.kube
options:
  plans:
    description: The name under which the play has registered the results of M(dgxspark.cluster.k3s_plan).
    type: str
    required: true
  kubectl:
    description: The command, as a list of words. An empty list asks the API itself.
    type: list
    elements: str
    default: [/usr/local/bin/k3s, kubectl]
  timeout:
    description: Seconds to wait.
    type: int
    default: 60
"""

EXAMPLES = r"""
- name: Verify the nodes as the cluster sees them
  dgxspark.cluster.k3s_ready:
    plans: plan
  delegate_to: "{{ groups['k3s_server'] | first }}"
  run_once: true
"""

RETURN = r"""
problems:
  description: One sentence for each node that is not as planned.
  type: list
  elements: str
  returned: always
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "plans": {"type": "str", "required": True},
    "kubectl": {"type": "list", "elements": "str", "default": ["/usr/local/bin/k3s", "kubectl"]},
    "timeout": {"type": "int", "default": 60},
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
