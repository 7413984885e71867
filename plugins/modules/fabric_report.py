#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_report
short_description: Judge the fabric's readings as passed, failed or incomplete, with the causes
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Judges link, MTU, ARP, GID and RDMA, step by step, then NCCL on the nodes and in the serving pod, tokens, and whether a request
    went over the fabric. It returns a report and a table for the terminal.
  - The verdict is V(failed) where anything failed, V(incomplete) where something required could not be run, else
    V(passed). What was not run is listed with the reason, and never counts as passed.
  - Root causes come first, and each lists its consequences.
  - It reads C(dgxspark_plan), and for each host of the play its readings C(__verify_seen) - C(facts) or C(error), C(probe) or
    C(probe_error), and C(rdma), the list of all RDMA test results, and C(rdma_error) if some are missing.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  started:
    description: When the verification began, for the report.
    type: str
    required: true
  plan_fault:
    description: Why the plan refuses the nodes' readings, if it does.
    type: str
  mode:
    description: What is required, as an id from C(knowledge/modes) or from the owner's folders.
    type: str
    default: full
  results:
    description:
      - The results of the steps beyond the fabric, by step. A step that is absent here counts as not run. A step may instead have
        only C(reason), why it was not run.
      - C(nccl) and C(pod) have C(hosts), those of the ranks in order; C(runs), each with C(operation), C(bytes), C(busbw) in GB/s
        and where known C(algbw) and C(time_us), or C(output), what the benchmark of role nccl printed; C(faults), the C(host) and
        C(message) of each rank that failed; C(transport), what M(dgxspark.cluster.nccl_transport) returned; C(counters);
        C(readings), the known lines found in their logs; and C(versions).
      - C(tokens) is what M(dgxspark.cluster.serving_canary) returned.
      - C(wire) has C(counters). For each host they have C(before) and C(after), each what M(dgxspark.cluster.roce_counters)
        returned in C(counters).
    type: dict
    default: {}
requirements:
  - jsonschema (Python library, on the controller)
seealso:
  - module: dgxspark.cluster.fabric_schedule
  - plugin: dgxspark.cluster.report_html
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Judge the readings
  dgxspark.cluster.fabric_report:
    started: "2026-01-01T00:00:00Z"
  register: outcome
  run_once: true
"""

RETURN = r"""
report:
  description: The report, whose C(verdict) is V(passed), V(failed) or V(incomplete). Its format is defined by a JSON Schema.
  type: dict
  returned: success
table:
  description: The report as lines for a terminal.
  type: list
  elements: str
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "started": {"type": "str", "required": True},
    "plan_fault": {"type": "str"},
    "mode": {"type": "str", "default": "full"},
    "results": {"type": "dict", "default": {}},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
