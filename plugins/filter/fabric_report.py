# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: fabric_report
short_description: Judge what was seen of the fabric and say passed, failed or incomplete, with the causes
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Judges link, MTU, ARP, GID and RDMA, step by step, and returns a report and a table for the terminal.
  - The verdict is V(failed) where anything failed, V(incomplete) where something required could not be run, else
    V(passed). What was not run is said, with the reason, and never counts as passed.
  - Of what failed, the deepest causes come first, and each lists what follows from it.
positional: hosts, thresholds, meta
options:
  _input:
    description: The plan, of P(dgxspark.cluster.fabric_plan#filter).
    type: dict
    required: true
  hosts:
    description: >-
      What was seen, by host, for the hosts within the limit. Each has C(facts) or C(error), C(probe) or C(probe_error), and
      C(rdma), the list of all answers to RDMA tests, and C(rdma_error) where some are missing.
    type: dict
    required: true
  thresholds:
    description: An entry of the knowledge base's kind C(thresholds).
    type: dict
    required: true
  meta:
    description:
      - C(started), C(finished) and C(versions), for the report.
      - C(plan_fault), why the plan refuses what the nodes showed, where it does.
    type: dict
    default: {}
seealso:
  - plugin: dgxspark.cluster.fabric_schedule
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Show the table
  ansible.builtin.debug:
    msg: "{{ (dgxspark_plan | dgxspark.cluster.fabric_report(seen, thresholds)).table }}"
"""

RETURN = r"""
_value:
  description: The outcome.
  type: dict
  contains:
    report:
      description: The report, whose C(verdict) is V(passed), V(failed) or V(incomplete). Its form is fixed by a JSON Schema.
      type: dict
    table:
      description: The report as lines for a terminal.
      type: list
      elements: str
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.front import as_filter
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.gate.model import evidence_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.gate.report import build_report


def fabric_report(plan: t.Any, hosts: t.Any, thresholds: t.Any, meta: t.Any = None) -> dict[str, t.Any]:
    """Return the report and the table."""
    meta = dict(meta or {})
    meta["versions"] = {"collection": knowledge.collection_version(), **(meta.get("versions") or {})}
    return build_report(evidence_of(plan, hosts, thresholds, meta), meta)


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"fabric_report": as_filter("fabric_report", fabric_report)}
