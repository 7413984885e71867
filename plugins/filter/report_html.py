# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: report_html
short_description: Render a report as an HTML page
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns one self-contained HTML page, which needs no network and no script.
  - For a report of C(verify.yml), it shows what passed, what failed and why, what was not run, bandwidth over message size against
    its bands, the fabric with its GIDs, and versions. For one of C(bench.yml), the figures of each level, what is garbage or failed
    and why, and what users get. For a matrix, the table of each traffic shape, and charts.
  - It is made from the report alone, so that earlier reports can be shown, too.
positional: knowledge_dirs
options:
  _input:
    description: >-
      A report, as C(verify.yml) or C(bench.yml) writes it (a dictionary), or the folder of a matrix, its journal, or the id of a
      shipped matrix (a string).
    type: raw
    required: true
  knowledge_dirs:
    description: The owner's knowledge folders, needed for the owner's own matrix.
    type: list
    elements: str
    default: []
requirements:
  - jsonschema (Python library, on the controller)
seealso:
  - module: dgxspark.cluster.bench
  - module: dgxspark.cluster.fabric_report
"""

EXAMPLES = r"""
- name: Make the page of an earlier report
  ansible.builtin.copy:
    content: "{{ lookup('ansible.builtin.file', 'reports/fabric.json') | from_json | dgxspark.cluster.report_html }}"
    dest: reports/fabric.html
    mode: "0644"

- name: Show what a matrix measured
  ansible.builtin.copy:
    content: "{{ lookup('dgxspark.cluster.owner_path', 'matrix/own-model') | dgxspark.cluster.report_html }}"
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
        return {"report_html": as_filter("report_html", "html_report.pages:of_report", convert=False)}
