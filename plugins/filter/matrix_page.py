# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: matrix_page
short_description: Make the page of a matrix
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns the results of a matrix as one HTML page that needs nothing else. playbooks/matrix.yml writes it after each case; this
    makes it of what is there, such as a seed's table.
positional: knowledge_dirs
options:
  _input:
    description: The folder of a matrix, its journal, or the id of a shipped matrix (a seed's table).
    type: str
    required: true
  knowledge_dirs:
    description: The owner's folders of knowledge.
    type: list
    elements: str
    default: []
requirements:
  - jsonschema (Python library, on the controller)
"""

EXAMPLES = r"""
- name: Show what a matrix measured
  ansible.builtin.copy:
    content: "{{ 'own-model' | dgxspark.cluster.matrix_page }}"
    dest: own-model.html
    mode: "0644"
"""

RETURN = r"""
_value:
  description: The page.
  type: str
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"matrix_page": as_filter("matrix_page", "html_report.matrix_page:of_log", convert=False)}
