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
positional: ranks, options, engine, nccl_version, knowledge_dirs
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
      C(vf_index), C(attachment) (V(vf) or V(host)), C(transport) (V(roce) or V(socket)), C(bootstrap) (an interface),
      C(gid_index) (pinned; best left out), C(merge_nics), C(debug).
    type: dict
    default: {}
  engine:
    description: The engine, which has a variable of its own.
    type: str
    choices: [sglang, vllm]
    default: sglang
  nccl_version:
    description: NCCL's version, for known workarounds.
    type: str
  knowledge_dirs:
    description: The owner's folders of knowledge, laid over the shipped one.
    type: list
    elements: str
    default: []
requirements:
  - jsonschema (Python library, on the controller)
  - jmespath (Python library, on the controller)
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

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.front import as_filter
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import nccl_env


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"nccl_env": as_filter("nccl_env", nccl_env)}
