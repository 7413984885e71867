# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: image_plan
short_description: Decide who pulls an engine's image, who copies it from whom, and whether there is room
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - An image that no node has whole is fetched by one; all others copy it along a chain over the fabric. A node that has it needs
    nothing.
  - What a tag stands for is taken from the nodes, the holder's first, and from the registry only where none of them knows it.
positional: seen, fabric, choices, prospect
options:
  _input:
    description: The image, as the owner names it.
    type: str
    required: true
  seen:
    description: What M(dgxspark.cluster.image_info) returned, by host, in the order of ranks.
    type: dict
    required: true
  fabric:
    description: The fabric plan's hosts.
    type: dict
  choices:
    description: >-
      C(source), C(reserve_gib), C(port), C(patience_s), C(vf_index), C(addresses) (by host, instead of the fabric's), C(refresh) and
      C(pull) (the ranks' imagePullPolicy).
    type: dict
  prospect:
    description: What M(dgxspark.cluster.image_fetch) said in check mode, or P(dgxspark.cluster.image_archive#lookup).
    type: dict
"""

EXAMPLES = r"""
- name: Decide
  ansible.builtin.set_fact:
    image: "{{ 'registry.example/engine:1.2' | dgxspark.cluster.image_plan(seen, dgxspark_plan.hosts, {'reserve_gib': 20}) }}"
"""

RETURN = r"""
_value:
  description: >-
    C(reference) (what pods ask for, with its digest), C(digest), C(holder), C(fetch), C(have), C(lacking), C(clean), C(chain) (a link by
    host), C(listing), C(moves) and C(problems) in words.
  type: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.front import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"image_plan": as_filter("image_plan", "images.plan:decide")}
