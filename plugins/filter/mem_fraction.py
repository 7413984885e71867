# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: mem_fraction
short_description: Plan the memory of one rank
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns the engine's memory knob with floor, ceiling and choice, and the pools behind them, in GiB.
  - SGLang's C(mem_fraction_static) and vLLM's C(gpu_memory_utilization) are different things; the key C(knob) says which
    one it is.
positional: cluster, overrides, knowledge_dirs
options:
  _input:
    description: The id of a profile, the name of a model that has one profile, or a profile as a dictionary.
    type: raw
    required: true
  cluster:
    description: >-
      What the model shall run on. C(hosts), names in the order of ranks; C(free_gib), free memory before the load in
      GiB, a number or by host (the least counts); C(taken_gib), what other instances on the nodes hold;
      C(platform), versions of C(nccl), C(kernel), C(driver), C(firmware)
      and the kernel's C(cmdline); C(fabric), the fabric plan's hosts; C(nccl), options of P(dgxspark.cluster.nccl_env#filter).
    type: dict
    default: {}
  overrides:
    description: >-
      What the owner wants otherwise. C(variant); C(engine), C(parallel), C(settings), C(environment), laid over the
      profile key by key; C(instance) with C(name), C(vf_index), C(port), C(dist_port); C(accept), the ids of error rules
      that are overruled and stay visible as warnings.
    type: dict
    default: {}
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
- name: Show what is left for the cache
  ansible.builtin.debug:
    msg: "{{ ('glm-4.7-nvfp4' | dgxspark.cluster.mem_fraction({'free_gib': 104})).kv_gib }}"
"""

RETURN = r"""
_value:
  description: >-
    C(knob), C(floor), C(ceiling), C(chosen), C(free_gib), C(weights_gib), C(mamba_gib), C(kv_gib), C(draft_gib),
    C(graphs_gib), C(kv_tokens), C(max_running_requests) and others.
  type: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.front import as_filter
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import mem_fraction


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"mem_fraction": as_filter("mem_fraction", mem_fraction)}
