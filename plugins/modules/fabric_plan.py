#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_plan
short_description: Plan the fabric as its nodes are, or without them where they contradict the inventory
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Plans what the filter P(dgxspark.cluster.fabric_plan#filter) does, for the inventory's fabric (C(dgxspark_fabric), its group of hosts, and
    each host's C(dgxspark_roce) where it was read). A node that contradicts the inventory is what verify and doctor look for, so it
    is no failure here. Then the plan is that of the inventory alone, and RV(fault) says why.
  - It fails where the inventory alone cannot be planned.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
requirements:
  - netaddr (Python library, on the controller)
  - jsonschema (Python library, on the controller)
seealso:
  - plugin: dgxspark.cluster.fabric_plan
    plugin_type: filter
  - module: dgxspark.cluster.roce_info
"""

EXAMPLES = r"""
- name: Plan the fabric with the names that the nodes use
  dgxspark.cluster.fabric_plan:
  register: planned
  run_once: true
"""

RETURN = r"""
plan:
  description: The plan, as the filter returns it.
  type: dict
  returned: success
fault:
  description: Why the plan with what the nodes show is refused; null if it is not.
  type: str
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
