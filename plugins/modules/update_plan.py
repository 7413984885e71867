#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: update_plan
short_description: Decide which packages and firmware each Spark gets, and in which order
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Compares what the nodes of the play have with a stated set, or with the newest versions without a known fault that all of them are
    offered. Known-bad versions are refused.
  - Reads the results that the role spark_update registers, and what an earlier run noted in the folder. Changes nothing.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  packages:
    description: Versions by package; V(newest) stands for the newest good one. Empty takes the packages of the hardware class.
    type: dict
    default: {}
  firmware:
    description: Versions by a pattern of fwupd's names or GUIDs of devices; V(newest) stands for the newest good one. Empty leaves firmware as it is.
    type: dict
    default: {}
  k3s:
    description: Whether K3s, and nothing else, goes to the release that the role k3s has planned.
    type: bool
    default: false
  only_stated:
    description: Whether empty O(packages) leave all packages as they are.
    type: bool
    default: false
  canary:
    description: The host that goes first. By default the first that differs.
    type: str
  folder:
    description: Where the runs keep their notes, on the controller.
    type: path
    required: true
  profile:
    description: The hardware class, whose packages are in C(knowledge/updates).
    type: str
    required: true
  restarts:
    description: Whether nodes may be restarted.
    type: bool
    default: true
requirements:
  - jsonschema, packaging (Python libraries, on the controller)
seealso:
  - module: dgxspark.cluster.update_proof
"""

EXAMPLES = r"""
- name: Decide
  dgxspark.cluster.update_plan:
    packages: {linux-image-nvidia: newest}
    folder: "{{ playbook_dir }}/update"
    profile: spark
  register: update
  run_once: true
"""

RETURN = r"""
wanted:
  description: Versions by package.
  type: dict
  returned: success
aim:
  description: All that the update is for; versions of packages and of the parts beside them.
  type: dict
  returned: success
turns:
  description: >-
    What each node gets, in order; C(host), C(install), C(restart), C(before), C(wanted), C(kernel), C(back), C(there), C(remove), C(boot),
    C(resumed), C(aim) and, beside the packages, C(parts).
  type: list
  elements: dict
  returned: success
holds:
  description: Packages to hold now, by host.
  type: dict
  returned: success
refusals:
  description: Why nothing may be updated.
  type: list
  elements: str
  returned: success
lines:
  description: The plan for a terminal.
  type: list
  elements: str
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "packages": {"type": "dict", "default": {}},
    "firmware": {"type": "dict", "default": {}},
    "k3s": {"type": "bool", "default": False},
    "only_stated": {"type": "bool", "default": False},
    "canary": {"type": "str"},
    "folder": {"type": "path", "required": True},
    "profile": {"type": "str", "required": True},
    "restarts": {"type": "bool", "default": True},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
