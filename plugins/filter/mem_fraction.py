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
  - Returns the engine's memory setting with floor, ceiling and choice, and the pools behind them, in GiB.
  - SGLang's C(mem_fraction_static) and vLLM's C(gpu_memory_utilization) are different things; the key C(knob) says which
    one it is.
  - The settings that the engine runs with count, not only the written ones. A profile without facts is refused.
positional: cluster, overrides, knowledge_dirs
extends_documentation_fragment:
  - dgxspark.cluster.serving
  - dgxspark.cluster.serving.knowledge
  - dgxspark.cluster.serving.profile
"""

EXAMPLES = r"""
- name: Show what is left for the cache
  ansible.builtin.debug:
    msg: "{{ (k8s_dgx_model_profile | dgxspark.cluster.mem_fraction({'free_gib': 104})).kv_gib }}"
"""

RETURN = r"""
_value:
  description: >-
    C(knob), C(floor), C(ceiling), C(chosen) and C(chosen_by) (V(given) or V(planned)); C(free_gib), C(free_assumed) (it was not
    measured), C(free_most_gib) and C(free_needed_gib), what the chosen knob needs to be free; C(weights_gib), C(weights_from),
    C(weights_by_kind), C(mamba_gib), C(kv_gib), C(draft_gib), C(graphs_gib), C(activations_gib), C(context_gib), C(sampler_gib),
    C(sampler_needed_gib), C(reserve_gib), C(used_gib) and C(load_peak_gib); C(kv_tokens), C(kv_tokens_most) (with the most free
    memory that was seen), C(kv_bytes_token), C(mamba_slots), C(slots_per_request) and C(max_running_requests).
  type: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"mem_fraction": as_filter("mem_fraction", "serving.plan:memory_plan")}
