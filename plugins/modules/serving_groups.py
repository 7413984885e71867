#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: serving_groups
short_description: Serve one model by several groups of Sparks side by side
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Divides the Sparks into equal groups and runs the playbook C(serve) for each, one after the other. Each is an instance of its own, and all
    have the same names, so that the gateway balances them.
  - Stops at the first group that does not come up; the others are not touched.
  - Runs on the controller through its action plugin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
options:
  profile:
    description: The model's profile, by name or as a dictionary.
    type: raw
    required: true
  hosts:
    description: The Sparks, in order. Neighbours make a group.
    type: list
    elements: str
    required: true
  groups:
    description: How many groups. V(0) takes the number that suits O(traffic_shape), by the planner's estimates.
    type: int
    default: 0
  traffic_shape:
    description: V(single), V(agents), V(throughput) or V(mixed), as in the role k8s_dgx.
    type: str
    default: mixed
  overrides:
    description: The plan's overrides. C(instance.name) is the beginning of the groups' names.
    type: dict
    default: {}
  state:
    description: V(absent) stops the groups, one after the other.
    type: str
    choices: [present, absent]
    default: present
  folder:
    description: Where the runs' output goes, on the controller.
    type: path
    required: true
  knowledge_dirs:
    description: Your knowledge folders.
    type: list
    elements: str
    default: []
requirements:
  - jsonschema, jmespath, packaging (Python libraries, on the controller)
seealso:
  - module: dgxspark.cluster.launch_plan
"""

EXAMPLES = r"""
- name: Serve a model by four groups
  dgxspark.cluster.serving_groups:
    profile: my-model
    hosts: "{{ ansible_play_hosts_all }}"
    groups: 4
    folder: groups
  run_once: true
"""

RETURN = r"""
groups:
  description: Each group's instance, and its C(hosts).
  type: list
  elements: dict
  returned: success
table:
  description: All divisions with their estimated tokens per second, for a terminal.
  type: list
  elements: str
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "profile": {"type": "raw", "required": True},
    "hosts": {"type": "list", "elements": "str", "required": True},
    "groups": {"type": "int", "default": 0},
    "traffic_shape": {"type": "str", "default": "mixed"},
    "overrides": {"type": "dict", "default": {}},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "folder": {"type": "path", "required": True},
    "knowledge_dirs": {"type": "list", "elements": "str", "default": []},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
