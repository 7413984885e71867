# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: knowledge
short_description: Read an entry of the knowledge base
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns an entry of the data that this collection ships, such as a hardware class, with the owner's overrides.
  - Every entry is checked against the schema of its kind; a bad one is an error that names its file and key.
options:
  _terms:
    description: The kind, such as V(hardware), and the entry's id. Without an id, all entries of the kind by id.
    type: list
    elements: str
    required: true
  dirs:
    description:
      - Your folders, in the layout of the shipped one.
      - By default C(inventory_dir/dgxspark), if that folder exists.
    type: list
    elements: path
    vars:
      - name: dgxspark_knowledge_dirs
requirements:
  - jsonschema (Python library, on the controller)
"""

EXAMPLES = r"""
- name: Show the functions that a machine of the class is expected to have
  ansible.builtin.debug:
    msg: "{{ lookup('dgxspark.cluster.knowledge', 'hardware', 'spark').slots }}"
"""

RETURN = r"""
_raw:
  description: The entry (or all entries by id), with the key C(origin), the file that it comes from.
  type: list
  elements: dict
"""

import typing as t

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge


class LookupModule(LookupBase):  # type: ignore[misc,unused-ignore]
    """`lookup('dgxspark.cluster.knowledge', kind, id)`."""

    def run(self, terms: list[t.Any], variables: t.Any = None, **kwargs: t.Any) -> list[t.Any]:
        """Return one entry, or all entries of a kind."""
        self.set_options(var_options=variables, direct=kwargs)
        if len(terms) not in (1, 2) or not all(isinstance(term, str) for term in terms):
            raise AnsibleLookupError(
                "dgxspark.cluster.knowledge: a kind and an id are needed, such as 'hardware', 'spark'."
            )
        dirs = knowledge.owner_dirs(self.get_option("dirs"), (variables or {}).get("inventory_dir"))
        try:
            if len(terms) == 1:
                return [knowledge.load(terms[0], dirs)]
            return [knowledge.get(terms[0], terms[1], dirs)]
        except CollectionError as exc:
            raise AnsibleLookupError(
                f"dgxspark.cluster.knowledge: {exc}"
            ) from None  # Ansible would print the causes, too
