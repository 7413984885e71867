# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: doctor_report
short_description: Say what is wrong with a running cluster, by what its nodes showed
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Compares what was read of the nodes with the plan, with each other, and with what is known to be bad. Says of each thing
    found the symptom, the cause and the remedy.
  - The verdict is V(error) where anything of severity error was found, else V(warning), else V(well). What could not be
    judged is said.
positional: hosts, hardware, meta, knowledge_dirs
options:
  _input:
    description: The plan, of P(dgxspark.cluster.fabric_plan#filter).
    type: dict
    required: true
  hosts:
    description: >-
      What was seen, by host, for the hosts within the limit. Each has C(facts) (of M(dgxspark.cluster.roce_info)) or C(error),
      and C(health) (of M(dgxspark.cluster.node_health)) or C(health_error). C(reached) says that it answered, whatever was read.
    type: dict
    required: true
  hardware:
    description: The hardware class, whose entries of the kinds C(thresholds) and C(health) apply.
    type: str
    required: true
  meta:
    description:
      - C(started), C(finished) and C(versions), for the report.
      - C(plan_fault), why the plan refuses what the nodes showed, where it does.
      - C(needed_gib), the free memory that the plan of serving counts on, and C(pinned_gid), whether a GID index is pinned.
      - C(vf_options) and C(netplan_path), where the roles' variables are not their defaults.
    type: dict
    default: {}
  knowledge_dirs:
    description: The owner's folders of knowledge, laid over the shipped one.
    type: list
    elements: str
    default: []
seealso:
  - plugin: dgxspark.cluster.fabric_report
    plugin_type: filter
  - module: dgxspark.cluster.node_health
"""

EXAMPLES = r"""
- name: Show what is wrong
  ansible.builtin.debug:
    msg: "{{ (dgxspark_plan | dgxspark.cluster.doctor_report(seen, 'spark')).table }}"
"""

RETURN = r"""
_value:
  description: The outcome.
  type: dict
  contains:
    report:
      description: The report, whose C(verdict) is V(well), V(warning) or V(error). Its form is fixed by a JSON Schema.
      type: dict
    table:
      description: The report as lines for a terminal.
      type: list
      elements: str
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


def doctor_report(
    plan: t.Any, hosts: t.Any, hardware: str, meta: t.Any = None, knowledge_dirs: t.Any = ()
) -> dict[str, t.Any]:
    """Return the report and the table."""
    from ansible_collections.dgxspark.cluster.plugins.plugin_utils import doctor_report as core
    from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge

    meta = dict(meta or {})
    meta["versions"] = {"collection": knowledge.collection_version(), **(meta.get("versions") or {})}
    return core.build(plan, hosts, hardware, meta, list(knowledge_dirs or ()))


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"doctor_report": as_filter("doctor_report", doctor_report)}
