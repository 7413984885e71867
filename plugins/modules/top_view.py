#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: top_view
short_description: Show how busy the Sparks and the served groups are
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Takes what the play has read of its nodes, asks the cluster for its groups and each group's engine for its metrics, and shows memory,
    GPU, clock, power, temperature and RoCE traffic of each node, and requests, tokens and the KV cache's use of each group. It changes
    nothing.
  - Rates need the reading before, as O(before).
  - It runs on the controller, which must reach the groups' ports. A cluster, node or engine that does not answer is reported, no failure.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.kube
options:
  health:
    description: The name under which the play has registered M(dgxspark.cluster.node_health).
    type: str
    required: true
  counters:
    description: The name under which the play has registered M(dgxspark.cluster.roce_counters).
    type: str
    required: true
  before:
    description: RV(reading) of the last time.
    type: dict
  show:
    description: What is printed.
    type: str
    choices: [table, json]
    default: table
  more:
    description: >-
      Whether another reading follows. Then nothing is printed; on a terminal the table is drawn, and refreshed by the next calls until
      one without O(more). It needs a terminal that the playbook has to itself.
    type: bool
    default: false
  pause:
    description: Seconds to wait if another reading follows. Quitting the view ends them.
    type: float
    default: 0
  screen:
    description: RV(screen) of the last time.
    type: str
    default: ""
  node_names:
    description: The nodes of hosts that have another name in Kubernetes.
    type: dict
    default: {}
  knowledge_dirs:
    description: Folders with the owner's knowledge.
    type: list
    elements: path
    default: []
requirements:
  - httpx (Python library, on the controller)
  - rich >= 13 (Python library, on the controller), for the view that refreshes
seealso:
  - module: dgxspark.cluster.kube_models
"""

EXAMPLES = r"""
- name: Show how busy the Sparks are
  dgxspark.cluster.top_view:
    health: health
    counters: counters
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
reading:
  description: What was read, for the next call's O(before).
  type: dict
  returned: success
view:
  description: What is shown, with rates. What is not known is null.
  type: dict
  returned: success
  contains:
    seconds:
      description: The time since the reading before; null without one.
      type: float
    nodes:
      description: By host; C(why) if it did not answer.
      type: dict
    groups:
      description: One for each group; C(why) if its engine did not answer.
      type: list
      elements: dict
    why:
      description: Why no group was seen.
      type: str
screen:
  description: What the next call needs to go on with the same screen; empty without one.
  type: str
  returned: success
ended:
  description: Whether no reading should follow, since there was one only or the view has been quit.
  type: bool
  returned: success
table:
  description: The same as lines.
  type: list
  elements: str
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "health": {"type": "str", "required": True},
    "counters": {"type": "str", "required": True},
    "before": {"type": "dict"},
    "show": {"type": "str", "choices": ["table", "json"], "default": "table"},
    "more": {"type": "bool", "default": False},
    "pause": {"type": "float", "default": 0},
    "screen": {"type": "str", "default": ""},
    "node_names": {"type": "dict", "default": {}},
    "knowledge_dirs": {"type": "list", "elements": "path", "default": []},
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
