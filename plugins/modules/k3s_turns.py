#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: k3s_turns
short_description: Decide which nodes change K3s at the same time
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Servers change first, one by one; then all new agents at once, since nothing runs on them; then the other agents one by one. A
    node that matches its plan has no turn.
  - It reads the plans that the play's hosts have registered.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  plans:
    description: The name under which the play has registered the results of M(dgxspark.cluster.k3s_plan).
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Decide which nodes change when
  dgxspark.cluster.k3s_turns:
    plans: plan
  register: order
  run_once: true
"""

RETURN = r"""
turns:
  description: The turns, each a list of hosts.
  type: list
  elements: list
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "plans": {"type": "str", "required": True},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
