#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_bench_plan
short_description: Plan the ranks of the NCCL benchmark
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns the benchmark program's arguments, the rendezvous variables, and the transport that is expected to carry the traffic.
  - If a VF of one of the hosts is in a pod, a model is being served, and messages stay small (C(nccl_bench_beside_serving)). The
    floor for available memory is the hardware class's (kind C(health)) unless C(nccl_bench_floor_gib) is set.
  - Reads the variables of the role P(dgxspark.cluster.nccl#role), C(dgxspark_fabric), and of each host C(ansible_host) and
    C(dgxspark_roce).
  - Runs on the controller through its action plugin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  hosts:
    description: The hosts that run one rank each, in order.
    type: list
    elements: str
    required: true
requirements:
  - jsonschema (Python library, on the controller)
seealso:
  - module: dgxspark.cluster.nccl_bench_pods
  - module: dgxspark.cluster.nccl_measured
"""

EXAMPLES = r"""
- name: Plan the benchmark's ranks
  dgxspark.cluster.nccl_bench_plan:
    hosts: "{{ ansible_play_hosts }}"
  register: bench
"""

RETURN = r"""
argv:
  description: The command of this host's rank; its program is passed on standard input.
  type: list
  elements: str
  returned: success
environment:
  description: What this rank needs besides NCCL's environment - the rendezvous, unless the host has no rank, and NCCL's log settings.
  type: dict
  returned: success
job:
  description: The job for M(dgxspark.cluster.nccl_bench_pods), without its C(image) and C(program).
  type: dict
  returned: success
expect:
  description: The transport expected to carry the traffic, V(ib) or V(socket).
  type: str
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "hosts": {"type": "list", "elements": "str", "required": True},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
