#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_schedule
short_description: Schedule which host sends which test traffic over the fabric
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns the arguments of M(dgxspark.cluster.fabric_probe) for each host. First the probes (ARP, ping), which all hosts run at
    the same time; and once their results are available, rounds of RDMA tests.
  - In a round no host has more than one peer, so that a bandwidth figure is that of a single path. Every pair that shares a segment
    meets once; if all pairs do, n hosts need n - 1 rounds, or n if n is odd.
  - A path is left out where it cannot be tested. The report gives the reason.
  - It reads C(dgxspark_plan), and for each host of the play its readings so far in C(__verify_seen) - C(facts) (from
    M(dgxspark.cluster.roce_info)) or C(error), and after the probes C(probe) or C(probe_error).
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
requirements:
  - jsonschema (Python library, on the controller)
seealso:
  - module: dgxspark.cluster.fabric_report
"""

EXAMPLES = r"""
- name: Schedule the probes of each host
  dgxspark.cluster.fabric_schedule:
  register: schedule
  run_once: true

- name: Probe every peer from every VF
  dgxspark.cluster.fabric_probe:
    arp: "{{ schedule.probes[inventory_hostname].arp }}"
    ping: "{{ schedule.probes[inventory_hostname].ping }}"
"""

RETURN = r"""
probes:
  description: The arguments C(arp) and C(ping) of each host that was read.
  type: dict
  returned: success
rounds:
  description: The rounds in order, each the argument C(rdma) by host. Empty until the probes' results are available.
  type: list
  elements: dict
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
