# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: launch_plan
short_description: Plan how a model is launched on Sparks
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Says before any weight is loaded whether a model will run, why not, how much memory it takes, and what each rank is
    started with.
  - The verdict is C(blocked) where there is a finding of severity error (a rule, an equal measured configuration that went
    wrong, an image of another version), C(proven) where an equal configuration was stable, else C(unproven).
positional: cluster, overrides, knowledge_dirs
extends_documentation_fragment:
  - dgxspark.cluster.serving
  - dgxspark.cluster.serving.knowledge
  - dgxspark.cluster.serving.profile
"""

EXAMPLES = r"""
- name: Refuse a launch that would not work
  ansible.builtin.assert:
    that: plan.verdict != 'blocked'
    fail_msg: "{{ plan.findings | selectattr('severity', 'eq', 'error') | map(attribute='message') | join(' ') }}"
  vars:
    plan: "{{ k8s_dgx_model_profile | dgxspark.cluster.launch_plan({'hosts': groups['dgx']}) }}"
"""

RETURN = r"""
_value:
  description: >-
    The plan with C(verdict), C(conflict), C(findings), C(evidence), C(memory), C(estimate), C(patches), C(weights), C(ranks),
    C(settings), C(added), what the plan added to them, and C(resolved), what the engine runs with and who decided it. All keys are
    described with the module M(dgxspark.cluster.launch_plan).
  type: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"launch_plan": as_filter("launch_plan", "serving.plan:launch_plan")}
