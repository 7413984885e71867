# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: kube_bench
short_description: Write the NCCL benchmark down as Kubernetes pods
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns a pod for each host, pinned to its node, with a GPU and with the VFs that no served model takes, and the objects
    that they need. They run once. The role P(dgxspark.cluster.nccl#role) runs them with C(nccl_bench_in=pods).
positional: fabric, job, kubernetes
options:
  _input:
    description: NCCL's environment by host, in the order of the ranks, as P(dgxspark.cluster.nccl_env#filter) returns it.
    type: dict
    required: true
  fabric:
    description: The hosts of the fabric plan, by name.
    type: dict
    required: true
  job:
    description: >-
      C(image), which has PyTorch; C(program), its text; C(arguments); C(environment) for all ranks; C(port) on which rank 0
      is met; C(timeout_s); C(vf_index), null for the first VF that is not for serving.
    type: dict
    required: true
  kubernetes:
    description: The owner's choices, as for P(dgxspark.cluster.kube_serving#filter).
    type: dict
    default: {}
seealso:
  - plugin: dgxspark.cluster.nccl_measured
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Show on which node each rank would run
  ansible.builtin.debug:
    msg: "{{ (environments | dgxspark.cluster.kube_bench(dgxspark_plan.hosts, job)).nodes }}"
  vars:
    job:
      image: registry.example.org/engine@sha256:0000000000000000000000000000000000000000000000000000000000000000
      program: "{{ lookup('ansible.builtin.file', 'nccl_bench.py') }}"
"""

RETURN = r"""
_value:
  description: >-
    C(common), to be put there first, and C(ranks), the pods; C(namespace), C(instance) and C(plan), as
    M(dgxspark.cluster.kube_wait) takes them; C(nodes), by host.
  type: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"kube_bench": as_filter("kube_bench", "kube.bench:bench")}
