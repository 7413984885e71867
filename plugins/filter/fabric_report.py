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
  - Judges link, MTU, ARP, GID and RDMA, step by step, then NCCL on the nodes and in the serving pod, tokens, and whether
    a request took the fabric. It returns a report and a table for the terminal.
  - The verdict is V(failed) where anything failed, V(incomplete) where something required could not be run, else
    V(passed). What was not run is said, with the reason, and never counts as passed.
  - Of what failed, the deepest causes come first, and each lists what follows from it.
positional: hosts, thresholds, meta, mode, results, bands, knowledge_dirs
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
  mode:
    description: >-
      An entry of the knowledge base's kind C(modes), which says what steps are required. Without it, those of the fabric.
    type: dict
  results:
    description:
      - What was done beyond the fabric, by step. A step that is absent here is not run. Each may instead have C(reason)
        alone, why it was not done.
      - C(nccl) and C(pod) have C(hosts), of the ranks in order; C(runs), each with C(operation), C(bytes), C(busbw) in GB/s
        and where known C(algbw) and C(time_us), or C(output), what the benchmark of role nccl printed; C(faults), the
        C(host) and C(message) of each rank that did not end well; C(transport), what
        M(dgxspark.cluster.nccl_transport) returned; C(counters); C(readings), what known lines are in their logs; and
        C(versions).
      - C(tokens) is what M(dgxspark.cluster.serving_canary) returned.
      - C(wire) has C(counters). They are by host C(before) and C(after), each what M(dgxspark.cluster.roce_counters)
        returned in C(counters).
    type: dict
    default: {}
  bands:
    description: The entries of the knowledge base's kind C(bands), by id. Without them every bandwidth is unknown.
    type: dict
    default: {}
  knowledge_dirs:
    description: The owner's folders of knowledge, whose kind C(signatures) says what lines of logs mean.
    type: list
    elements: path
    default: []
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

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter

RESULTS = ("nccl", "pod", "tokens", "wire")


def fabric_report(
    plan: t.Any,
    hosts: t.Any,
    thresholds: t.Any,
    meta: t.Any = None,
    mode: t.Any = None,
    results: t.Any = None,
    bands: t.Any = None,
    knowledge_dirs: t.Any = (),
) -> dict[str, t.Any]:
    """Return the report and the table."""
    from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
    from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.modes import mode_of
    from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.report import STEP_IDS, build_report
    from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.values import evidence_of

    meta, results = dict(meta or {}), dict(results or {})
    strangers = [name for name in results if name not in RESULTS]
    if strangers:
        raise CollectionError(f"results: there is no step {strangers[0]!r}. Known: {', '.join(RESULTS)}.")
    meta["versions"] = {"collection": knowledge.collection_version(), **(meta.get("versions") or {})}
    known = {"bands": bands or {}, "knowledge_dirs": tuple(knowledge_dirs or ())}
    evidence = evidence_of(plan, hosts, thresholds, {**results, **meta, **known})
    return build_report(evidence, meta, mode=mode_of(mode, STEP_IDS) if mode else None)


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"fabric_report": as_filter("fabric_report", fabric_report)}
