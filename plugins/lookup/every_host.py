# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: every_host
short_description: Return the pattern for all hosts, or for localhost if the inventory has none
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - For the C(hosts) of a play. Without any host in the inventory no task would run, and Ansible would end with exit status 0. So
    the play gets localhost, on which M(dgxspark.cluster.preflight) says what is missing.
  - With a limit, even localhost is left out, and only the play itself can refuse.
  - With C(--syntax-check) any inventory will do.
options:
  _terms:
    description: None.
seealso:
  - module: dgxspark.cluster.limit_guard
"""

EXAMPLES = r"""
- name: Work on all hosts, of which there must be at least one
  hosts: "{{ lookup('dgxspark.cluster.every_host') }}"
"""

RETURN = r"""
_raw:
  description: The pattern V(all), or V(localhost).
  type: list
  elements: str
"""

import typing as t

from ansible import context
from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.inventory_limit import all_hosts


class LookupModule(LookupBase):  # type: ignore[misc,unused-ignore]
    """`lookup('dgxspark.cluster.every_host')`."""

    def run(self, terms: list[t.Any], variables: t.Any = None, **kwargs: t.Any) -> list[str]:
        """Return the pattern for all hosts."""
        try:
            groups, sources = (variables or {}).get("groups") or {}, context.CLIARGS.get("inventory") or ()
            if not (groups.get("all") or context.CLIARGS.get("subset") or context.CLIARGS.get("syntax")):
                return ["localhost"]
            return [all_hosts(groups, needed=not context.CLIARGS.get("syntax"), sources=sources)]
        except CollectionError as exc:
            raise AnsibleLookupError(
                f"dgxspark.cluster.every_host: {exc}"
            ) from None  # Ansible would print the causes, too
