#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: power_plan
short_description: Decide the limit of a node's GPU clock
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Builds the systemd unit of the role spark_power from the figure of a hardware class (C(knowledge/health)) or your own.
  - A limit that would look like the GPU's low-power state is refused.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  profile:
    description: The hardware class, such as V(spark).
    type: str
    required: true
  clock_mhz:
    description: The highest clock of the GPU, in MHz. By default the hardware class's.
    type: int
requirements:
  - jsonschema (Python library, on the controller)
seealso:
  - module: dgxspark.cluster.unit_files
"""

EXAMPLES = r"""
- name: Decide
  dgxspark.cluster.power_plan:
    profile: spark
  register: planned

- name: Show the limit
  ansible.builtin.debug:
    msg: "{{ planned.mhz }} MHz"
"""

RETURN = r"""
mhz:
  description: The limit in MHz.
  type: int
  returned: success
files:
  description: >-
    Files, each with C(path), C(content) and C(mode); this and the others in the form that M(dgxspark.cluster.unit_files) takes.
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
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "profile": {"type": "str", "required": True},
    "clock_mhz": {"type": "int"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
