#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_bench_plan
short_description: Decide what the ranks of the NCCL benchmark are asked
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns the benchmark program's arguments, the variables by which the ranks meet, and what is to carry their traffic.
  - Where one of the hosts has a VF in a pod, a model is being served, and messages stay small (C(nccl_bench_beside_serving)). The
    floor of available memory is that of the hardware class (kind C(health)) unless C(nccl_bench_floor_gib) is set.
  - It reads the variables of the role P(dgxspark.cluster.nccl#role), C(dgxspark_fabric), and of each host C(ansible_host) and
    C(dgxspark_roce).
  - Runs on the controller, by its action plugin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  hosts:
    description: The hosts that have a rank each, in order.
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
- name: Decide what the ranks are asked
  dgxspark.cluster.nccl_bench_plan:
    hosts: "{{ ansible_play_hosts }}"
  register: bench
"""

RETURN = r"""
argv:
  description: The command of this host's rank, whose program comes by standard input.
  type: list
  elements: str
  returned: success
environment:
  description: What this rank needs beside NCCL's environment - how the ranks meet, unless the host has none, and what NCCL logs.
  type: dict
  returned: success
job:
  description: The job for M(dgxspark.cluster.nccl_bench_pods), but for its C(image) and C(program).
  type: dict
  returned: success
expect:
  description: What is to carry the traffic, V(ib) or V(socket).
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
