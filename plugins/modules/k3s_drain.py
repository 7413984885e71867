#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: k3s_drain
short_description: Drain a node of its ranks, or let pods in again
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Cordons a node and evicts its ranks, with kubectl. The node is marked (annotation C(dgxspark.cluster/drained)), so that a later
    run lets pods in again if this one is cut off. A node that somebody else has cordoned is not marked, and stays cordoned.
  - It runs where kubectl is.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
attributes:
  check_mode:
    support: partial
    details:
      - Is skipped.
  diff_mode:
    support: none
options:
  state:
    description:
      - V(drained) drains the one node in O(names). If its ranks do not go, pods are let in again, and it fails.
      - V(returned) lets pods in again on those of O(names) that a run has drained, once the API answers.
    type: str
    choices: [drained, returned]
    required: true
  names:
    description: Nodes, as the cluster calls them.
    type: list
    elements: str
    required: true
  ranks:
    description: The node's ranks, for the message.
    type: list
    elements: str
    default: []
  selector:
    description: The pods to evict, as a label selector. Required with O(state=drained).
    type: str
  kubectl:
    description: The command, as a list of words.
    type: list
    elements: str
    default: [/usr/local/bin/k3s, kubectl]
  timeout:
    description: Seconds for the ranks to go, or for the API to answer.
    type: int
    default: 60
"""

EXAMPLES = r"""
- name: Uncordon the node where a run was cut off
  dgxspark.cluster.k3s_drain:
    state: returned
    names: [spark1, spark2]
  delegate_to: "{{ groups['k3s_server'] | first }}"
  run_once: true
"""

RETURN = r"""
nodes:
  description: The nodes that were drained, or given back.
  type: list
  elements: str
  returned: always
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "state": {"type": "str", "choices": ["drained", "returned"], "required": True},
    "names": {"type": "list", "elements": "str", "required": True},
    "ranks": {"type": "list", "elements": "str", "default": []},
    "selector": {"type": "str"},
    "kubectl": {"type": "list", "elements": "str", "default": ["/usr/local/bin/k3s", "kubectl"]},
    "timeout": {"type": "int", "default": 60},
}
REQUIRED_IF = [("state", "drained", ["selector"])]
main = controller_only(ARGUMENTS, required_if=REQUIRED_IF)

if __name__ == "__main__":
    main()
