# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: k3s_nodes
short_description: Compare the cluster's nodes with their plans
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Finds planned nodes that are not in the cluster, not Ready, of another release, or with another address.
positional: plans
options:
  _input:
    description: What C(kubectl get nodes --output=json) says.
    type: dict
    required: true
  plans:
    description: The plans of P(dgxspark.cluster.k3s_plan#filter) by host.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Refuse a cluster in which a node is missing
  ansible.builtin.assert:
    that: nodes.stdout | from_json | dgxspark.cluster.k3s_nodes(plans) | length == 0
"""

RETURN = r"""
_value:
  description: One sentence for each problem. Empty when all is well.
  type: list
  elements: str
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


def k3s_nodes(listed: t.Any, plans: t.Any) -> list[str]:
    """Return the problems as sentences."""
    from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.k3s_nodes import problems

    return [str(finding) for finding in problems(listed, plans)]


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"k3s_nodes": as_filter("k3s_nodes", k3s_nodes)}
