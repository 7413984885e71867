# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: nccl_measured
short_description: Return the outcome of the NCCL benchmark's ranks
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Takes what Ansible saw of the ranks of the benchmark of the role P(dgxspark.cluster.nccl#role), and returns the evidence
    for the step C(nccl) of M(dgxspark.cluster.fabric_report), or the reason why nothing was measured.
positional: transport, knowledge_dirs
options:
  _input:
    description:
      - By host, in the order of the ranks, C(check), the result of the benchmark's C(--check), C(done), that of the rank
        itself, and C(fault), why NCCL's environment could not be built.
    type: dict
    required: true
  transport:
    description: What M(dgxspark.cluster.nccl_transport) returned of the logs of all ranks.
    type: dict
  knowledge_dirs:
    description: The owner's folders of knowledge, for the known lines (kind C(signatures)) of the ranks' logs.
    type: list
    elements: path
    default: []
seealso:
  - plugin: dgxspark.cluster.nccl_bandwidth
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Say why nothing was measured
  ansible.builtin.debug:
    msg: "{{ (ranks | dgxspark.cluster.nccl_measured).reason | default('every host can take part') }}"
"""

RETURN = r"""
_value:
  description: >-
    C(reason) alone where nothing was measured; empty where every host can take part and no rank was started. Else
    C(hosts), C(output) of rank 0, C(transport), C(faults) (C(host) and C(message) of each rank that did not end well),
    C(readings) (what known lines are in each log) and C(versions).
  type: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"nccl_measured": as_filter("nccl_measured", "nccl.measured:measured")}
