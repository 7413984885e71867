#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kube_memory
short_description: Wait until a node has the memory that a launch plan requires
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Compares the node's MemAvailable with what the plan requires before weights are loaded, with one GiB of slack, until
    it is free or the timeout expires. Memory of an engine that has ended may take seconds to be freed.
  - It reads the node with M(dgxspark.cluster.roce_info). It never fails for lack of memory, so that all nodes can be reported at
    once.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  needed_gib:
    description: Memory in GiB that the plan requires. Without it the node is not read.
    type: float
  device_ids:
    description: PCI C(vendor:device) of the fabric's functions, as for M(dgxspark.cluster.roce_info).
    type: list
    elements: str
    required: true
  timeout:
    description: Seconds to wait.
    type: int
    default: 0
"""

EXAMPLES = r"""
- name: Wait until the old group's memory is free again
  dgxspark.cluster.kube_memory:
    needed_gib: 101
    device_ids: ["15b3:1021"]
    timeout: 60
  register: memory
"""

RETURN = r"""
lacking:
  description: What is missing, in a sentence with what to do. Empty where nothing is.
  type: list
  elements: str
  returned: always
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "needed_gib": {"type": "float"},
    "device_ids": {"type": "list", "elements": "str", "required": True},
    "timeout": {"type": "int", "default": 0},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
