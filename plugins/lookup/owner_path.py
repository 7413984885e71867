# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: owner_path
short_description: Resolve an owner's path on the controller
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Modules that run on the controller resolve a relative path against the playbook's folder, which for a collection's playbook is
    where the collection is installed. This lookup resolves it against the folder in which C(ansible-playbook) was started, and
    expands C(~).
options:
  _terms:
    description: The paths, as given.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Write the plan where the owner is
  ansible.builtin.copy:
    content: "{{ dgxspark_plan | to_nice_json }}"
    dest: "{{ lookup('dgxspark.cluster.owner_path', dgxspark_plan_file) }}"
    mode: "0644"
  delegate_to: localhost
"""

RETURN = r"""
_raw:
  description: The absolute paths.
  type: list
  elements: str
"""

import os
import typing as t

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase


class LookupModule(LookupBase):  # type: ignore[misc,unused-ignore]
    """`lookup('dgxspark.cluster.owner_path', path)`."""

    def run(self, terms: list[t.Any], variables: t.Any = None, **kwargs: t.Any) -> list[str]:
        """Return each path as an absolute path."""
        self.set_options(var_options=variables, direct=kwargs)
        if not all(isinstance(term, str) and term.strip() for term in terms):
            raise AnsibleLookupError(f"dgxspark.cluster.owner_path: paths are needed, not {terms!r}.")
        # Not $PWD: it belongs to the shell, and may differ in a service or script that starts the playbook.
        return [os.path.abspath(os.path.expanduser(str(term))) for term in terms]  # noqa: PTH100, PTH111 - as text
