# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: evidence_export
short_description: Turn the outcome of a plan into a row of evidence
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns a row in the format of shipped rows, for a file in C(evidence/) of your knowledge folder, or for sharing.
  - What the plan added by itself is left out, so that the row describes what was asked for. A share of memory that the plan chose
    has to be written into the settings, otherwise the row is near the plan and not equal to it.
  - Add C(complete) as V(true) where the whole command is known to be the plan's. Without it a decisive setting that was left
    open keeps the row near. A row without an image proves nothing.
positional: row_id, outcome, measured, source, note
options:
  _input:
    description: The plan that was run, as P(dgxspark.cluster.launch_plan#filter) returns it.
    type: dict
    required: true
  row_id:
    description: A unique name for the row.
    type: str
    required: true
  outcome:
    description: The outcome.
    type: str
    choices: [stable, crash, garbage]
    required: true
  measured:
    description: C(n1), C(n4), C(n8) in tokens per second over all successful requests; C(accept_len); sizes in GiB.
    type: dict
    required: true
  source:
    description: Who measured it, and where it can be read.
    type: list
    elements: str
    required: true
  note:
    description: Any remark.
    type: str
    default: ""
requirements:
  - jsonschema (Python library, on the controller)
  - jmespath (Python library, on the controller)
"""

EXAMPLES = r"""
- name: Keep what was measured
  ansible.builtin.copy:
    dest: "{{ inventory_dir }}/dgxspark/evidence/mine.yml"
    content: "{{ {'entries': [row | combine({'complete': true})]} | to_nice_yaml }}"
    mode: "0644"
  vars:
    row: "{{ plan | dgxspark.cluster.evidence_export('mine-1', 'stable', {'n1': 40.1}, ['own bench']) }}"
"""

RETURN = r"""
_value:
  description: The row.
  type: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"evidence_export": as_filter("evidence_export", "planner.api:evidence_export")}
