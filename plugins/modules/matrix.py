#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: matrix
short_description: Measure many configurations of a model, one after the other
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Plans the cases of a matrix, skips blocked and duplicate ones, and takes the rest through switch, quick verification
    and benchmark, the most promising first. At the end the previous model serves again.
  - Each step is a run of one of the collection's playbooks (C(serve), C(verify), C(bench), C(ranks)) in a process of its own, with
    the options of the run that this task is in. A failed case does not stop the others; a lost node does.
  - Every case ends with a line of the journal. A killed run resumes where it was; Ctrl-C stops it after the current
    case.
  - In check mode it only plans and shows the cases.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.actiongroup
attributes:
  check_mode:
    description: Plans, and measures nothing.
    support: full
  diff_mode:
    description: Has no diff.
    support: none
options:
  matrix:
    description: The id of a matrix, shipped or in the owner's folders, or the path of a file.
    type: str
    required: true
  folder:
    description: Where journal, page, log and every case's evidence go, on the controller.
    type: path
    required: true
  rows_to:
    description: The owner's knowledge folder that the measured rows are written to.
    type: path
    required: true
  cluster:
    description: As M(dgxspark.cluster.launch_plan) takes it.
    type: dict
    default: {}
  overrides:
    description: What the owner overrides in all cases, such as C(instance).
    type: dict
    default: {}
  hours:
    description: A time limit. No case is started that would probably exceed it. By default there is no limit.
    type: float
  accept_changed:
    description: Continue although the matrix has changed since the journal was started.
    type: bool
    default: false
  share:
    description: A file for the rows without host names and addresses.
    type: path
  names:
    description: Names and addresses that O(share) must not contain.
    type: list
    elements: str
    default: []
  versions:
    description: Versions of what each node runs, as M(dgxspark.cluster.node_health) returns them, for the rows.
    type: list
    elements: dict
    default: []
  image:
    description: The image that runs, if it is not the plan's.
    type: str
    default: ""
  knowledge_dirs:
    description: Your knowledge folders, on top of the shipped one.
    type: list
    elements: path
    default: []
requirements:
  - jsonschema (Python library, on the controller)
  - jmespath (Python library, on the controller)
  - netaddr (Python library, on the controller)
seealso:
  - module: dgxspark.cluster.bench
  - module: dgxspark.cluster.launch_plan
"""

EXAMPLES = r"""
- name: Measure the cases of a matrix
  dgxspark.cluster.matrix:
    matrix: own-model  # an entry of the kind `matrices`, shipped or the owner's
    folder: matrix/own-model
    rows_to: "{{ inventory_dir }}/dgxspark"
    hours: 8
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
measured:
  description: How many cases were measured in this run.
  returned: when not in check mode
  type: int
left:
  description: How many are still to be measured.
  returned: when not in check mode
  type: int
ended:
  description: Why it ended - V(done), V(time), V(stopped) or V(lost).
  returned: when not in check mode
  type: str
page:
  description: The page with the results.
  returned: when not in check mode
  type: str
log:
  description: The same in Markdown.
  returned: when not in check mode
  type: str
rows:
  description: The file with the measured rows.
  returned: when not in check mode
  type: str
table:
  description: The results, or in check mode the plan, as lines for a terminal.
  returned: success
  type: list
  elements: str
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "matrix": {"type": "str", "required": True},
    "folder": {"type": "path", "required": True},
    "rows_to": {"type": "path", "required": True},
    "cluster": {"type": "dict", "default": {}},
    "overrides": {"type": "dict", "default": {}},
    "hours": {"type": "float"},
    "accept_changed": {"type": "bool", "default": False},
    "share": {"type": "path"},
    "names": {"type": "list", "elements": "str", "default": []},
    "versions": {"type": "list", "elements": "dict", "default": []},
    "image": {"type": "str", "default": ""},
    "knowledge_dirs": {"type": "list", "elements": "path", "default": []},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
