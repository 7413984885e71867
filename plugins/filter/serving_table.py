# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: serving_table
short_description: Show a serving plan as text
positional: recommendation
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns the lines of a plan as a person reads it, with the verdict and what qualifies it, memory as a bar, findings with
    their remedy, measured rows with what differs, what was assumed and what speaks against them, the settings that run by who
    says them, start-up patches, and what each rank is started with.
options:
  _input:
    description: The plan, as P(dgxspark.cluster.launch_plan#filter) returns it.
    type: dict
    required: true
  recommendation:
    description: What P(dgxspark.cluster.recommend#filter) said for the plan's traffic shape, to be shown with it.
    type: dict
    required: false
"""

EXAMPLES = r"""
- name: Show the plan
  dgxspark.cluster.show:
    lines: "{{ k8s_dgx_plan | dgxspark.cluster.serving_table }}"
"""

RETURN = r"""
_value:
  description: The lines.
  type: list
  elements: str
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"serving_table": as_filter("serving_table", "serving.table:serving_table")}
