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
  - Returns the stable measured row with the most tokens per second for the shape among those that a variant of the profile
    serves, and that variant. A figure at which not all requests were answered does not count.
  - Without any such row the profile's own choice is returned, marked unproven, and C(reason) says so.
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
  description: The choice.
  type: dict
  contains:
    variant:
      description: The variant to serve, C(default) where the profile has none.
      type: str
      returned: always
    verdict:
      description: >-
        V(proven) where the variant is equal to the row; V(unproven) where the row does not state all that it ran with, or where
        there is no row.
      type: str
      returned: always
    row:
      description: The row that was chosen, or null.
      type: str
      returned: always
    better:
      description: A better row that no variant serves, or null.
      type: str
      returned: always
    blemishes:
      description: What casts doubt on the row's figures - requests that failed, and a note that says so.
      type: list
      elements: str
      returned: always
    settings:
      description: What the variant is planned with, by canonical names.
      type: dict
      returned: always
    measured:
      description: The row's figures, C(n1), C(n4) and C(n8) in tokens per second and others. Empty without a row.
      type: dict
      returned: always
    losses:
      description: The share of the best row's figure that is given up at C(n1), C(n4) and C(n8), from 0 to 1.
      type: dict
      returned: always
    reason:
      description: The choice in words.
      type: str
      returned: always
    profile:
      description: The profile's id; next to it C(shape).
      type: str
      returned: always
    engine:
      description: C(name), C(version) and C(image) of the row.
      type: dict
      returned: with a row
    parallel:
      description: C(nodes), C(tp), C(pp) and C(ep) of the row.
      type: dict
      returned: with a row
    source:
      description: Where the row was published.
      type: list
      elements: str
      returned: with a row
    note:
      description: What the row's source says besides its figures.
      type: str
      returned: with a row
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"recommend": as_filter("recommend", "planner.api:recommend")}
