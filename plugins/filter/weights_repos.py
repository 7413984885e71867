# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: weights_repos
short_description: Name the repositories that a launch plan's ranks load
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - The model's, and the drafter's where the plan speculates with one.
positional: revisions
options:
  _input:
    description: The plan, as M(dgxspark.cluster.launch_plan) returns it.
    type: dict
    required: true
  revisions:
    description: Commits by repository, which win over the profile's.
    type: dict
"""

EXAMPLES = r"""
- name: See what the nodes have of it
  dgxspark.cluster.weights_info:
    cache_dir: /var/lib/dgxspark/cache
    repos: "{{ k8s_dgx_plan | dgxspark.cluster.weights_repos }}"
"""

RETURN = r"""
_value:
  description: Dictionaries of C(repo) and C(revision), which is null where nobody pins one.
  type: list
  elements: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"weights_repos": as_filter("weights_repos", "weights.plan:repos")}
