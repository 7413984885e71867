#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_measured
short_description: Return the outcome of the NCCL benchmark
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Takes what the role P(dgxspark.cluster.nccl#role) registered for each host, reads the logs of all ranks, and returns the
    evidence for the step C(nccl) of M(dgxspark.cluster.fabric_report), or the reason why nothing was measured. Never fails for a
    benchmark that failed.
  - Runs on the controller through its action plugin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  hosts:
    description: The hosts, in the order of the ranks.
    type: list
    elements: str
    required: true
  ended:
    description: Whether the ranks were run. Otherwise only O(ignore:reason) is returned, or nothing if every host can take part.
    type: bool
    default: false
  pods:
    description: What M(dgxspark.cluster.nccl_bench_pods) returned, failed or not. Without it the ranks are processes.
    type: dict
  expect:
    description: What should have carried the traffic, as for M(dgxspark.cluster.nccl_transport).
    type: str
    choices: [ib, socket, any]
    default: ib
seealso:
  - module: dgxspark.cluster.nccl_bench_pods
  - module: dgxspark.cluster.nccl_transport
  - plugin: dgxspark.cluster.nccl_bandwidth
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Return what the pods measured
  dgxspark.cluster.nccl_measured:
    hosts: "{{ ansible_play_hosts }}"
    ended: true
    pods: "{{ ended }}"
  register: measured
  run_once: true
"""

RETURN = r"""
reason:
  description: Why nothing was measured. In that case only O(ignore:counters) is returned with it.
  type: str
  returned: when nothing could be measured
hosts:
  description: The hosts, in the order of the ranks.
  type: list
  elements: str
  returned: where the ranks were run
output:
  description: What rank 0 printed.
  type: str
  returned: where the ranks were run
transport:
  description: What carried the traffic, as M(dgxspark.cluster.nccl_transport) returns it; RV(ignore:msg) says why it is not as expected.
  type: dict
  returned: where the ranks were run
faults:
  description: C(host) and C(message) of each rank that failed.
  type: list
  elements: dict
  returned: where the ranks were run
readings:
  description: The known lines found in each log.
  type: list
  elements: dict
  returned: where the ranks were run
versions:
  description: The versions of NCCL and PyTorch, as rank 0 reported them.
  type: dict
  returned: where the ranks were run
counters:
  description: By host, what M(dgxspark.cluster.roce_counters) read C(before) and C(after) the run.
  type: dict
  returned: with O(ended=true)
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "hosts": {"type": "list", "elements": "str", "required": True},
    "ended": {"type": "bool", "default": False},
    "pods": {"type": "dict"},
    "expect": {"type": "str", "choices": ["ib", "socket", "any"], "default": "ib"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
