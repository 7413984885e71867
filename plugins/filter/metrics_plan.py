# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: metrics_plan
short_description: Say what the role spark_metrics lays on a node
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Makes the files of the role spark_metrics of a host in the fabric's plan.
positional: profile, textfile, interval_s
options:
  _input:
    description: The host, as C(dgxspark_plan.hosts) has it.
    type: dict
    required: true
  profile:
    description: The hardware class, such as V(spark).
    type: str
    required: true
  textfile:
    description: The folder of the node exporter's textfile collector.
    type: path
    required: true
  interval_s:
    description: Seconds between two readings.
    type: int
    required: true
  gid_index:
    description: The GID index that NCCL is pinned to, where it is.
    type: int
  floor_mib:
    description: The floor of available memory. By default where the class's memory guard acts.
    type: int
  report:
    description: The JSON report of the last C(verify), on the controller.
    type: path
  knowledge_dirs:
    description: The owner's folders of knowledge.
    type: list
    elements: str
    default: []
requirements:
  - jsonschema (Python library, on the controller)
"""

EXAMPLES = r"""
- name: Show which files a node would get
  ansible.builtin.debug:
    msg: "{{ planned.files | map(attribute='path') }}"
  vars:
    planned: >-
      {{ dgxspark_plan.hosts[inventory_hostname]
         | dgxspark.cluster.metrics_plan('spark', '/var/lib/prometheus/node-exporter', 60) }}
"""

RETURN = r"""
_value:
  description: C(files), C(enable), C(restart), C(output) and C(needs), as M(dgxspark.cluster.unit_files) takes them.
  type: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


def metrics_plan(
    host: t.Any,
    profile: str,
    textfile: str,
    interval_s: int,
    gid_index: t.Any = None,
    floor_mib: t.Any = None,
    report: t.Any = None,
    knowledge_dirs: t.Any = (),
) -> t.Any:
    """Return the plan."""
    from ansible_collections.dgxspark.cluster.plugins.plugin_utils.metrics import plan

    return plan(
        host,
        str(profile),
        str(textfile),
        int(interval_s),
        gid_index=None if gid_index is None else int(gid_index),
        floor_mib=None if floor_mib is None else int(floor_mib),
        report=str(report) if report else None,
        dirs=[str(path) for path in knowledge_dirs],
    )


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"metrics_plan": as_filter("metrics_plan", metrics_plan)}
