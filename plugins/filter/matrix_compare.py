# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: matrix_compare
short_description: Lay two logs of a matrix side by side
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Says what got slower or faster beyond the noise of the repeats, and which cases no longer pass, or do so now.
  - Noise is what the repeats of a case show; without repeats three per cent count as the difference of two runs. Cases are matched
    by their names.
positional: after, knowledge_dirs
options:
  _input:
    description: The folder of a matrix, its journal, or the id of a shipped matrix (a seed's table).
    type: str
    required: true
  after:
    description: The other one.
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
- name: Say what a new driver changed
  ansible.builtin.debug:
    msg: "{{ ('matrix/driver-580' | dgxspark.cluster.matrix_compare('matrix/driver-595')).table }}"
"""

RETURN = r"""
_value:
  description: >-
    C(about) (what differs of engine and platform), C(rows) by C(case), C(n) and C(sum) with C(change), C(noise) and C(verdict),
    C(broken), C(mended), C(only), and C(table), its lines.
  type: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"matrix_compare": as_filter("matrix_compare", "matrix.compare:matrix_compare")}
