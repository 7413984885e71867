# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: kube_problems
short_description: Tell why ranks could not start, before anything is stopped for them
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Names nodes that are not in the cluster, not ready or cordoned, and network attachments that are not there.
positional: nodes, attachments
options:
  _input:
    description: The planned objects, as P(dgxspark.cluster.kube_serving#filter) returns it.
    type: dict
    required: true
  nodes:
    description: The cluster's nodes.
    type: list
    elements: dict
    required: true
  attachments:
    description: The cluster's NetworkAttachmentDefinitions.
    type: list
    elements: dict
    default: []
"""

EXAMPLES = r"""
- name: Refuse what could not start
  ansible.builtin.assert:
    that: problems | length == 0
    fail_msg: "{{ problems | join(' ') }}"
  vars:
    problems: "{{ served | dgxspark.cluster.kube_problems(nodes.resources, attachments.resources) }}"
"""

RETURN = r"""
_value:
  description: A sentence for each problem, with what to do. Empty where there is none.
  type: list
  elements: str
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"kube_problems": as_filter("kube_problems", "kube.rollout:problems")}
