# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: k3s_turns
short_description: Say which nodes change K3s at the same time
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Servers change one by one, first of all; then all agents that are new, at once, since nothing runs there; then the other
    agents one by one. A node that does not differ has no turn.
positional: order
options:
  _input:
    description: The plans of P(dgxspark.cluster.k3s_plan#filter) by host.
    type: dict
    required: true
  order:
    description: The hosts, servers first.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Show who changes when
  ansible.builtin.debug:
    msg: "{{ plans | dgxspark.cluster.k3s_turns(groups['k3s_server'] + groups['k3s_agent']) }}"
"""

RETURN = r"""
_value:
  description: The turns, each a list of hosts.
  type: list
  elements: list
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"k3s_turns": as_filter("k3s_turns", "kube.k3s:turns")}
