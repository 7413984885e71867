# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: bench_html
short_description: Make a page for people of the report of a benchmark
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns one HTML page that needs nothing else, no network and no script. It shows the figures of each level, what is garbage or
    failed and why, and what users get.
  - It is made of the report alone, so that one written earlier can be looked at, too.
options:
  _input:
    description: A report, as M(dgxspark.cluster.bench) returns it and C(bench.yml) writes it.
    type: dict
    required: true
seealso:
  - module: dgxspark.cluster.bench
"""

EXAMPLES = r"""
- name: Make the page of a report that was written earlier
  ansible.builtin.copy:
    content: "{{ lookup('ansible.builtin.file', 'reports/bench.json') | from_json | dgxspark.cluster.bench_html }}"
    dest: reports/bench.html
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
        return {"bench_html": as_filter("bench_html", "html_report.bench:page", convert=False)}
