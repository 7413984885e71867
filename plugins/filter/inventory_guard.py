# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: inventory_guard
short_description: Refuse an inventory without hosts
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns the pattern V(all) for the C(hosts) of a play. Without any host in the inventory no task would run, and Ansible
    would end with exit status 0, so only the play itself can refuse.
  - With C(--syntax-check) any inventory will do.
options:
  _input:
    description: Ansible's C(groups).
    type: dict
    required: true
seealso:
  - plugin: dgxspark.cluster.limit_guard
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Work on all hosts, of which there must be one
  hosts: "{{ groups | dgxspark.cluster.inventory_guard }}"
"""

RETURN = r"""
_value:
  description: The pattern V(all).
  type: str
"""

import typing as t

from ansible import context

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


def inventory_guard(groups: t.Mapping[str, t.Sequence[str]]) -> str:
    """Return the pattern."""
    from ansible_collections.dgxspark.cluster.plugins.plugin_utils.inventory_limit import all_hosts

    return all_hosts(groups, needed=not context.CLIARGS.get("syntax"))


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"inventory_guard": as_filter("inventory_guard", inventory_guard)}
