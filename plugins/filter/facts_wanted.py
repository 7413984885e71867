# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: facts_wanted
short_description: Name the model whose facts a profile does not state
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns the hub's name of the profile's model if the profile states no facts, so that they are looked for; else an empty string.
positional: knowledge_dirs
extends_documentation_fragment:
  - dgxspark.cluster.serving.knowledge
  - dgxspark.cluster.serving.profile
"""

EXAMPLES = r"""
- name: Say which model's config.json is needed
  ansible.builtin.debug:
    msg: "{{ k8s_dgx_model_profile | dgxspark.cluster.facts_wanted }}"
"""

RETURN = r"""
_value:
  description: The model's name, or an empty string.
  type: str
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"facts_wanted": as_filter("facts_wanted", "planner.api:model_files_wanted")}
