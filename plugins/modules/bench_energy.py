#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: bench_energy
short_description: Add the energy of each level to a benchmark's report
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Compares when each level began and ended with readings of the power of the nodes' GPUs, and returns the report with joules, watts and tokens
    per joule. Where the power could not be read, the report says why.
  - The clocks of the nodes and of the machine that measured may differ. They are compared when the readings begin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  bench:
    description: The report of M(dgxspark.cluster.bench) or M(dgxspark.cluster.bench_pod).
    type: dict
    required: true
  hosts:
    description: The hosts with a rank of the model.
    type: list
    elements: str
    default: []
  once:
    description: The registered variable of M(dgxspark.cluster.power_samples) for a single reading on each host.
    type: str
    required: true
  whole:
    description: The registered variable of the readings during the benchmark.
    type: str
    required: true
  clock:
    description: The host whose clock the report has. By default it is the controller's.
    type: str
seealso:
  - module: dgxspark.cluster.bench
  - module: dgxspark.cluster.power_samples
"""

EXAMPLES = r"""
- name: Add the energy
  dgxspark.cluster.bench_energy:
    bench: "{{ measured.bench }}"
    hosts: [spark1, spark2]
    once: power_before
    whole: power_readings
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
bench:
  description: The report with C(power), and with C(energy) in each level; its format is defined by C(docs/schema/bench-report.json).
  returned: success
  type: dict
table:
  description: The report as lines for a terminal.
  returned: success
  type: list
  elements: str
problem:
  description: Why a level is not good; else empty.
  returned: success
  type: str
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "bench": {"type": "dict", "required": True},
    "hosts": {"type": "list", "elements": "str", "default": []},
    "once": {"type": "str", "required": True},
    "whole": {"type": "str", "required": True},
    "clock": {"type": "str"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
