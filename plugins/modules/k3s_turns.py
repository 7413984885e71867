#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: k3s_turns
short_description: Say which nodes change K3s at the same time
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Servers change one by one, first of all; then all agents that are new, at once, since nothing runs there; then the other
    agents one by one. A node that does not differ has no turn.
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
- name: Say who changes when
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

from ansible.module_utils.basic import AnsibleModule

ARGUMENTS: dict[str, dict[str, object]] = {
    "plans": {"type": "str", "required": True},
}


def main() -> None:
    """Never reached by way of Ansible: the action plugin of this name does the work on the controller."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    module.fail_json(
        msg="k3s_turns runs on the controller, by its action plugin. Call it as dgxspark.cluster.k3s_turns."
    )


if __name__ == "__main__":
    main()
