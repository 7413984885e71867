#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: update_proof
short_description: Measure the cluster around an update, and say in what it is worse
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Runs the playbooks C(verify) and C(bench) (mode C(quick)) with the options of the running ansible-playbook, and keeps their reports.
  - Without O(turn) it judges whether the cluster is fit to be updated. With it, the node that was updated is looked at too, and the
    results are compared with the first measurement in the folder.
  - In check mode it measures nothing.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  folder:
    description: Where reports and notes are kept, on the controller.
    type: path
    required: true
  run:
    description: Any of V(verify) and V(bench).
    type: list
    elements: str
    default: [verify, bench]
  turn:
    description: What was done, as M(dgxspark.cluster.update_plan) returns it.
    type: dict
  profile:
    description: The hardware class, whose packages are in C(knowledge/updates).
    type: str
    required: true
  wanted:
    description: The versions that this update is for. A first measurement of another update does not count.
    type: dict
    default: {}
  tolerance_percent:
    description: How much slower a model may be; runs differ by some percent.
    type: float
    default: 10
  wait_s:
    description: How long a model may take until it answers again.
    type: int
    default: 1800
requirements:
  - jsonschema, packaging (Python libraries, on the controller)
seealso:
  - module: dgxspark.cluster.update_plan
"""

EXAMPLES = r"""
- name: Measure first
  dgxspark.cluster.update_proof:
    folder: "{{ playbook_dir }}/update"
    profile: spark
  register: before
  run_once: true
"""

RETURN = r"""
reasons:
  description: Why the cluster is not fit to be updated, or in what it is worse.
  type: list
  elements: str
  returned: success
notes:
  description: What was not measured, and why.
  type: list
  elements: str
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "folder": {"type": "path", "required": True},
    "run": {"type": "list", "elements": "str", "default": ["verify", "bench"]},
    "turn": {"type": "dict"},
    "profile": {"type": "str", "required": True},
    "wanted": {"type": "dict", "default": {}},
    "tolerance_percent": {"type": "float", "default": 10},
    "wait_s": {"type": "int", "default": 1800},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
