# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: kube_bench_done
short_description: Return the outcome of the NCCL benchmark's pods, host by host
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Brings exit statuses and logs of the pods of P(dgxspark.cluster.kube_bench#filter) into the form that
    P(dgxspark.cluster.nccl_measured#filter) takes. Where no pod ran, the cause is the fault of each host.
positional: waited, logs
options:
  _input:
    description: What P(dgxspark.cluster.kube_bench#filter) returned.
    type: dict
    required: true
  waited:
    description: What M(dgxspark.cluster.kube_wait) returned of their end.
    type: dict
    required: true
  logs:
    description: What M(kubernetes.core.k8s_log) returned of each pod, in their order.
    type: list
    elements: dict
    default: []
"""

EXAMPLES = r"""
- name: Read the outcome of the ranks
  ansible.builtin.debug:
    msg: "{{ bench | dgxspark.cluster.kube_bench_done(waited, logs.results) | dgxspark.cluster.nccl_measured }}"
"""

RETURN = r"""
_value:
  description: By host, in the order of the ranks, C(check) and C(done), or C(fault).
  type: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"kube_bench_done": as_filter("kube_bench_done", "kube.bench:done")}
