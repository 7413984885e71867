# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: knowledge_dirs
short_description: Return the owner's knowledge folders
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns what filters of this collection take as C(knowledge_dirs), so that all of them see the same folders.
options:
  _terms:
    description: None.
  dirs:
    description:
      - Your folders, in the layout of the shipped one.
      - By default C(inventory_dir/dgxspark), if that folder exists.
    type: list
    elements: path
    vars:
      - name: dgxspark_knowledge_dirs
seealso:
  - plugin: dgxspark.cluster.knowledge
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Plan the fabric with the owner's hardware classes
  ansible.builtin.set_fact:
    plan: "{{ groups['dgx'] | dgxspark.cluster.fabric_plan(dgxspark_fabric, hostvars, lookup('dgxspark.cluster.knowledge_dirs')) }}"
"""

RETURN = r"""
_raw:
  description: One list, the folders.
  type: list
  elements: list
"""

import typing as t

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge


class LookupModule(LookupBase):  # type: ignore[misc,unused-ignore]
    """`lookup('dgxspark.cluster.knowledge_dirs')`."""

    def run(self, terms: list[t.Any], variables: t.Any = None, **kwargs: t.Any) -> list[t.Any]:
        """Return the folders as a single result."""
        self.set_options(var_options=variables, direct=kwargs)
        if terms:
            raise AnsibleLookupError("dgxspark.cluster.knowledge_dirs: it takes no terms.")
        return [knowledge.owner_dirs(self.get_option("dirs"), (variables or {}).get("inventory_dir"))]
