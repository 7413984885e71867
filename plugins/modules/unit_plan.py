#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: unit_plan
short_description: Decide which files and units a role installs on a node
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Builds the files of one of the roles memory_guard, spark_metrics and spark_power from the figures of a hardware class and from yours.
  - Figures that contradict each other are refused, and a clock limit that would look like the GPU's low-power state.
  - Give one of O(memory_guard), O(metrics) and O(power).
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  profile:
    description: The hardware class, such as V(spark).
    type: str
    required: true
  memory_guard:
    description: The memory guard (C(knowledge/memory_guard)).
    type: dict
    suboptions:
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
  metrics:
    description: The node's metrics for Prometheus, with the host's part of the fabric plan (C(dgxspark_plan)).
    type: dict
    suboptions:
      textfile:
        description: The folder of the node exporter's textfile collector, on the node.
        type: str
        required: true
      interval_s:
        description: Seconds between two readings.
        type: int
        required: true
      gid_index:
        description: The GID index that NCCL is pinned to, if any.
        type: int
      floor_mib:
        description: The floor of available memory. By default the value at which the class's memory guard acts.
        type: int
      report:
        description: The JSON report of the last C(verify), on the controller.
        type: path
  power:
    description: The limit of the GPU's clock (C(knowledge/health)).
    type: dict
    suboptions:
      clock_mhz:
        description: The highest clock of the GPU, in MHz. By default the hardware class's.
        type: int
requirements:
  - jsonschema (Python library, on the controller)
seealso:
  - module: dgxspark.cluster.unit_files
  - module: dgxspark.cluster.memory_guard
"""

EXAMPLES = r"""
- name: Decide
  dgxspark.cluster.unit_plan:
    profile: spark
    power: {}
  register: planned

- name: Show the limit
  ansible.builtin.debug:
    msg: "{{ planned.mhz }} MHz"
"""

RETURN = r"""
files:
  description: >-
    Files, each with C(path), C(content) and C(mode); this and the others in the form that M(dgxspark.cluster.unit_files) and
    M(dgxspark.cluster.memory_guard) take.
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
  returned: with O(memory_guard)
earlyoom:
  description: Whether earlyoom is needed.
  type: bool
  returned: with O(memory_guard)
output:
  description: Files that the program writes.
  type: list
  elements: str
  returned: with O(metrics)
needs:
  description: For each folder that the node must have, what to do if it does not.
  type: dict
  returned: with O(metrics)
mhz:
  description: The limit in MHz.
  type: int
  returned: with O(power)
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

PROGRAMS: dict[str, dict[str, dict[str, object]]] = {
    "memory_guard": {
        "overrides": {"type": "dict", "default": {}},
        "parts": {"type": "list", "elements": "str", "default": ["kill", "load", "protected"]},
    },
    "metrics": {
        "textfile": {"type": "str", "required": True},
        "interval_s": {"type": "int", "required": True},
        "gid_index": {"type": "int"},
        "floor_mib": {"type": "int"},
        "report": {"type": "path"},
    },
    "power": {"clock_mhz": {"type": "int"}},
}
ARGUMENTS: dict[str, dict[str, object]] = {
    "profile": {"type": "str", "required": True},
    **{name: {"type": "dict", "options": options} for name, options in PROGRAMS.items()},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
