# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: kube_memory
short_description: Tell whether a node has the memory that a launch plan counts on
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Compares the node's MemAvailable with what the plan wants free before weights are loaded, with a GiB of slack.
positional: needed_gib, host
options:
  _input:
    description: The node's facts, as M(dgxspark.cluster.roce_info) returns them.
    type: dict
    required: true
  needed_gib:
    description: Memory in GiB that the plan counts on. None needs none.
    type: float
  host:
    description: The node's name, for the message.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Wait until the old group's memory is back
  dgxspark.cluster.roce_info:
    device_ids: ["15b3:1021"]
  register: read
  until: (read.roce | dgxspark.cluster.kube_memory(101.0, inventory_hostname)) == []
  retries: 20
  delay: 3
"""

RETURN = r"""
_value:
  description: What is missing, in a sentence with what to do. Empty where nothing is.
  type: list
  elements: str
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"kube_memory": as_filter("kube_memory", "kube.rollout:short_of_memory")}
