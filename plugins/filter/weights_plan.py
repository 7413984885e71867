# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: weights_plan
short_description: Decide who downloads weights, who copies them from whom, and whether there is room
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - A repository that no node has whole is fetched by one; all others copy it along a chain over the fabric. A node that has
    it needs nothing.
  - Copies go over VFs that are not the instance's, since those may be in pods.
positional: seen, fabric, choices, prospects
options:
  _input:
    description: The repositories, as P(dgxspark.cluster.weights_repos#filter) returns them.
    type: list
    elements: dict
    required: true
  seen:
    description: What M(dgxspark.cluster.weights_info) returned, by host, in the order of ranks.
    type: dict
    required: true
  fabric:
    description: The fabric plan's hosts.
    type: dict
  choices:
    description: >-
      C(source), C(reserve_gib), C(port), C(patience_s), C(vf_index), C(addresses) (by host, instead of the fabric's) and
      C(verify).
    type: dict
  prospects:
    description: By repository what M(dgxspark.cluster.weights_fetch) said in check mode.
    type: dict
"""

EXAMPLES = r"""
- name: Decide
  ansible.builtin.set_fact:
    weights: "{{ repos | dgxspark.cluster.weights_plan(seen, dgxspark_plan.hosts, {'reserve_gib': 20}) }}"
"""

RETURN = r"""
_value:
  description: >-
    C(repos), each with C(holder), C(fetch), C(lacking), C(manifest) and C(chain) (a link by host), C(moves) and C(problems)
    in words.
  type: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"weights_plan": as_filter("weights_plan", "weights.plan:decide")}
