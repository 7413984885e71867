# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: nccl_env
short_description: Build NCCL's environment from the fabric plan
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns the variables of each rank. One that need not be set is left out, since an empty one counts as a value.
  - In RoCE mode NCCL refuses to start where it would otherwise fall back to sockets without an error.
  - Where all ranks share the same switch or cables, HCAs are used in pairs of the same number (C(NCCL_CROSS_NIC=0)). Where cables
    lead to different neighbours (C(triangle), C(ring)), NCCL is told to find the HCA by the peer's subnet, which needs NCCL 2.30u1
    or newer, and start-up traffic needs another interface (C(bootstrap)).
positional: ranks, options, engine, nccl_version, knowledge_dirs, only
extends_documentation_fragment:
  - dgxspark.cluster.serving.knowledge
options:
  _input:
    description: The hosts of the fabric plan, by name.
    type: dict
    required: true
  ranks:
    description: The hosts that take part, in the order of ranks. All of the plan's by default.
    type: list
    elements: str
  options:
    description: >-
      C(vf_index) (null is the first VF that is not for serving), C(attachment) (V(vf) or V(host)), C(transport)
      (V(roce) or V(socket)), C(bootstrap) (an interface), C(gid_index) (pinned; best left out) with C(gids), the C(gids)
      that M(dgxspark.cluster.roce_gid) returned by host, as its proof, C(merge_nics) (whether NCCL joins HCAs to one;
      measure both), C(debug).
    type: dict
    default: {}
  engine:
    description: The engine, whose own variables are included; V(any) includes those of all engines.
    type: str
    choices: [sglang, vllm, any]
    default: sglang
  nccl_version:
    description: NCCL's version, for known workarounds.
    type: str
  only:
    description: The ranks to return variables for, all by default. The HCAs of the others need not be known.
    type: list
    elements: str
"""

EXAMPLES = r"""
- name: Show the environment of all ranks
  ansible.builtin.debug:
    msg: "{{ dgxspark_plan.hosts | dgxspark.cluster.nccl_env(nccl_version='2.30.4') }}"
"""

RETURN = r"""
_value:
  description: The variables by host.
  type: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"nccl_env": as_filter("nccl_env", "serving.environment:nccl_environment")}
