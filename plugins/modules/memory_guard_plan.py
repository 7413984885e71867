#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: memory_guard_plan
short_description: Decide what the memory guard installs on a node
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Builds the files of the role memory_guard from the figures of a hardware class (C(knowledge/memory_guard)) and your
    overrides.
  - Figures that contradict each other are refused.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  profile:
    description: The hardware class, such as V(spark).
    type: str
    required: true
  overrides:
    description: >-
      Overrides of the class's figures, in the same format, such as C({kill: {term_mib: 768}}).
    type: dict
    default: {}
  parts:
    description: Any of V(protected), V(kill) and V(load).
    type: list
    elements: str
    default: [kill, load, protected]
requirements:
  - jsonschema (Python library, on the controller)
seealso:
  - module: dgxspark.cluster.memory_guard
"""

EXAMPLES = r"""
- name: Decide
  dgxspark.cluster.memory_guard_plan:
    profile: spark
  register: guard

- name: Show which files a Spark would get
  ansible.builtin.debug:
    msg: "{{ guard.files | map(attribute='path') }}"
"""

RETURN = r"""
files:
  description: Files, each with C(path), C(content) and C(mode).
  type: list
  elements: dict
  returned: success
enable:
  description: Units to enable.
  type: list
  elements: str
  returned: success
restart:
  description: Units to restart after a change.
  type: list
  elements: str
  returned: success
adjust:
  description: The OOM score by unit.
  type: dict
  returned: success
earlyoom:
  description: Whether earlyoom is needed.
  type: bool
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "profile": {"type": "str", "required": True},
    "overrides": {"type": "dict", "default": {}},
    "parts": {"type": "list", "elements": "str", "default": ["kill", "load", "protected"]},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
