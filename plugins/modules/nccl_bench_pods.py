#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_bench_pods
short_description: Run the NCCL benchmark once, as pods next to any served model
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Creates a pod for each host, pinned to its node, with a GPU and with the VFs that no served model takes, waits until all have
    ended, or one has failed (the others would wait for it in vain), and reads their output.
  - The pods and what they need are always deleted afterwards; those of a killed earlier run are deleted first. The namespace stays.
  - Fails if no pod could be created. If no pod ran, because it cannot be scheduled or its image is missing, that is the C(fault) of
    each host.
  - Creates no pod in check mode.
  - The hosts' VFs are those of the fabric's plan, C(dgxspark_plan).
  - Runs on the controller through its action plugin. The role P(dgxspark.cluster.nccl#role) calls it with C(nccl_bench_in=pods).
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.kube
options:
  environments:
    description: NCCL's environment by host, in the order of the ranks, as P(dgxspark.cluster.nccl_env#filter) returns it.
    type: dict
    required: true
  job:
    description: >-
      C(image), which has PyTorch; C(program), its text; C(arguments); C(environment) for all ranks; C(port) on which rank 0 is
      reached; C(timeout_s); C(vf_index), null for the first VF that is not for serving.
    type: dict
    required: true
  kubernetes:
    description: The owner's choices, as for M(dgxspark.cluster.kube_serving).
    type: dict
    default: {}
seealso:
  - module: dgxspark.cluster.nccl_measured
"""

EXAMPLES = r"""
- name: Run a rank on each host
  dgxspark.cluster.nccl_bench_pods:
    environments: "{{ dgxspark_plan.hosts | dgxspark.cluster.nccl_env({'attachment': 'vf'}, engine='any') }}"
    job:
      image: registry.example.org/engine@sha256:0000000000000000000000000000000000000000000000000000000000000000
      program: "{{ lookup('ansible.builtin.file', 'nccl_bench.py') }}"
  register: ended
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
ranks:
  description: >-
    By host, in the order of the ranks, C(check) and C(done), with C(rc), C(stdout) and C(stderr), or C(fault), why it did not run.
  type: dict
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "environments": {"type": "dict", "required": True},
    "job": {"type": "dict", "required": True},
    "kubernetes": {"type": "dict", "default": {}},
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
