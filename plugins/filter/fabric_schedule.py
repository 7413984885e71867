# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: fabric_schedule
short_description: Say which host sends which test traffic over the fabric, and when
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns the arguments of M(dgxspark.cluster.fabric_probe) for each host. First the probes (ARP, ping), which all hosts
    run at the same time; and once their answers are given, rounds of RDMA tests.
  - In a round no host has more than one peer, so that a figure of bandwidth is that of one path alone. Every pair that
    shares a segment meets once; where all meet all, n hosts need n - 1 rounds, or n where n is odd.
  - A path is left out where it cannot be tested. The report gives the reason.
positional: hosts, thresholds
options:
  _input:
    description: The plan, of P(dgxspark.cluster.fabric_plan#filter).
    type: dict
    required: true
  hosts:
    description: >-
      What was seen, by host, for the hosts within the limit. Each has C(facts) (of M(dgxspark.cluster.roce_info)) or
      C(error), and after the probes C(probe) (what M(dgxspark.cluster.fabric_probe) returned) or C(probe_error).
    type: dict
    required: true
  thresholds:
    description: An entry of the knowledge base's kind C(thresholds).
    type: dict
    required: true
seealso:
  - plugin: dgxspark.cluster.fabric_report
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Probe every peer out of every VF
  dgxspark.cluster.fabric_probe:
    arp: "{{ schedule.probes[inventory_hostname].arp }}"
    ping: "{{ schedule.probes[inventory_hostname].ping }}"
  vars:
    schedule: "{{ dgxspark_plan | dgxspark.cluster.fabric_schedule(seen, thresholds) }}"
"""

RETURN = r"""
_value:
  description: The schedule.
  type: dict
  contains:
    probes:
      description: By host that was seen, the arguments C(arp) and C(ping).
      type: dict
    rounds:
      description: The rounds in order, each the argument C(rdma) by host. Empty before the probes' answers are given.
      type: list
      elements: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


def fabric_schedule(plan: t.Any, hosts: t.Any, thresholds: t.Any) -> dict[str, t.Any]:
    """Return who sends what, and when."""
    from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.schedule import probes, rdma_rounds
    from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.values import evidence_of

    evidence = evidence_of(plan, hosts, thresholds)
    return {"probes": probes(evidence), "rounds": rdma_rounds(evidence)}


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"fabric_schedule": as_filter("fabric_schedule", fabric_schedule)}
