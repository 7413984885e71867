# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: draft_tokens
short_description: Compute how many draft tokens SGLang really verifies
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns the number for an algorithm, its steps and its top-k; it is never below steps + 1.
  - Refuses what the engine refuses, or would accept and run wrongly.
positional: steps, tokens, topk, version, frozen_drafter, gamma
options:
  _input:
    description: The algorithm, as SGLang names it.
    type: str
    required: true
  steps:
    description: Draft steps.
    type: int
  tokens:
    description: Requested draft tokens.
    type: int
  topk:
    description: Branches at each step.
    type: int
  version:
    description: SGLang's version.
    type: str
    default: ""
  frozen_drafter:
    description: Whether the drafter reuses the target's cache, as assistant models do that have no cache of their own.
    type: bool
    default: false
  gamma:
    description: The block size in the configuration of a DSPARK or DFLASH drafter.
    type: int
requirements:
  - jmespath (Python library, on the controller)
"""

EXAMPLES = r"""
- name: Six steps need seven tokens
  ansible.builtin.debug:
    msg: "{{ ('NEXTN' | dgxspark.cluster.draft_tokens(6)).tokens }}"
"""

RETURN = r"""
_value:
  description: >-
    C(algorithm) that runs (V(NEXTN) is V(EAGLE)), C(steps), C(topk), C(tokens), C(forced), whether the engine runs another
    number of tokens than was given, and C(findings).
  type: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"draft_tokens": as_filter("draft_tokens", "planner.api:draft_tokens")}
