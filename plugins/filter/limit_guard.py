# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: limit_guard
short_description: Refuse a limit that reaches other hosts than it seems to
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Ansible reads C(-l 'spark[1-4]') as positions in the group C(spark), counted from 0. Where hosts of these names
    exist, and others or fewer are reached, the limit does not mean what its writer meant.
  - A limit that leaves no host of the playbook's groups would pass with exit status 0 and do nothing.
positional: groups, reached, targets, also
options:
  _input:
    description: The limit, usually C(ansible_limit | default('')).
    type: str
    required: true
  groups:
    description: Ansible's C(groups).
    type: dict
    required: true
  reached:
    description: The hosts that the limit leaves, usually C(ansible_play_hosts_all).
    type: list
    elements: str
    required: true
  targets:
    description: The groups that the playbook works on.
    type: list
    elements: str
    required: true
  also:
    description: Groups on which it works too, where the inventory has them.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Refuse a limit that misleads
  ansible.builtin.assert:
    that: problems | length == 0
    fail_msg: "{{ problems | join(' ') }}"
  vars:
    problems: "{{ ansible_limit | default('') | dgxspark.cluster.limit_guard(groups, ansible_play_hosts_all, ['dgx']) }}"
"""

RETURN = r"""
_value:
  description: One sentence for each problem, with the command that does what was meant. Empty when all is well.
  type: list
  elements: str
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


def limit_guard(
    limit: str, groups: t.Any, reached: list[str], targets: list[str], also: t.Sequence[str] = ()
) -> list[str]:
    """Return the problems of a limit as sentences."""
    from ansible_collections.dgxspark.cluster.plugins.plugin_utils.inventory_limit import check_limit

    return [str(finding) for finding in check_limit(limit, groups, reached, targets, also)]


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"limit_guard": as_filter("limit_guard", limit_guard)}
