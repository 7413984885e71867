# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: recommend
short_description: Find the best measured configuration for a traffic shape
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns the stable measured row with the most tokens per second for the shape, and the profile's nearest variant.
  - Without any row for the shape the profile's own choice comes back, marked unproven, and C(reason) says so.
positional: shape, knowledge_dirs
extends_documentation_fragment:
  - dgxspark.cluster.serving.knowledge
  - dgxspark.cluster.serving.profile
options:
  shape:
    description: >-
      V(single), V(agents) and V(throughput) stand for 1, 4 and 8 requests at once; V(mixed) is the compromise with the
      best geometric mean of the three.
    type: str
    choices: [single, agents, throughput, mixed]
    required: true
"""

EXAMPLES = r"""
- name: Choose for one user
  ansible.builtin.debug:
    msg: "{{ k8s_dgx_model_profile | dgxspark.cluster.recommend('single') }}"
"""

RETURN = r"""
_value:
  description: C(variant), C(verdict), C(row), C(settings), C(measured), C(losses) and C(reason).
  type: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.front import as_filter
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import recommend


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"recommend": as_filter("recommend", recommend)}
