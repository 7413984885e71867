#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: metrics_plan
short_description: Decide what the role spark_metrics installs on a node
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Builds the files of the role spark_metrics from the host's part of the fabric plan (C(dgxspark_plan)).
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  profile:
    description: The hardware class, such as V(spark).
    type: str
    required: true
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
requirements:
  - jsonschema (Python library, on the controller)
seealso:
  - module: dgxspark.cluster.unit_files
"""

EXAMPLES = r"""
- name: Decide
  dgxspark.cluster.metrics_plan:
    profile: spark
    textfile: /var/lib/prometheus/node-exporter
    interval_s: 60
  register: planned

- name: Show which files a node would get
  ansible.builtin.debug:
    msg: "{{ planned.files | map(attribute='path') }}"
"""

RETURN = r"""
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
output:
  description: Files that the program writes.
  type: list
  elements: str
  returned: success
needs:
  description: For each folder that the node must have, what to do if it does not.
  type: dict
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "profile": {"type": "str", "required": True},
    "textfile": {"type": "str", "required": True},
    "interval_s": {"type": "int", "required": True},
    "gid_index": {"type": "int"},
    "floor_mib": {"type": "int"},
    "report": {"type": "path"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
