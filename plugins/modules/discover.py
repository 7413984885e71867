#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: discover
short_description: Write an inventory from the nodes' readings
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Derives from the nodes' readings how they are connected, the topology, the number of VFs and which networks are free, and checks
    the result with the fabric plan. Writes the inventory, and a page with a picture, into a folder on the controller.
  - Files with other content are not overwritten without O(overwrite). If something prevents an inventory, the reason is returned;
    nothing is guessed.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
options:
  hosts:
    description:
      - The nodes' readings, by host name in this run, in order.
      - Each has C(roce) from M(dgxspark.cluster.roce_info), C(survey) from M(dgxspark.cluster.node_survey), C(health) from
        M(dgxspark.cluster.node_health), C(machine) from M(dgxspark.cluster.k3s_info) and C(links) from
        M(dgxspark.cluster.fabric_probe). The reason why a node was not read is in C(error), or, for a part of it, in C(unread) by
        the part's name.
    type: dict
    required: true
  path:
    description: The folder, on the controller.
    type: path
    required: true
  overwrite:
    description: Overwrite files that have other content.
    type: bool
    default: false
  keep_names:
    description: >-
      Whether the hosts keep their names. Otherwise they become C(spark1) and so on, and are reached by the names of this run.
    type: bool
    default: false
  knowledge_dirs:
    description: Your knowledge folders.
    type: list
    elements: path
    default: []
requirements:
  - netaddr (Python library, on the controller)
seealso:
  - module: dgxspark.cluster.node_survey
  - plugin: dgxspark.cluster.fabric_plan
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Write the inventory
  dgxspark.cluster.discover:
    hosts: "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars) | map(attribute='seen'))) }}"
    path: "{{ lookup('dgxspark.cluster.owner_path', 'my-cluster') }}"
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
ok:
  description: Whether the folder now has, or in check mode would have, the inventory.
  returned: success
  type: bool
lines:
  description: What was discovered, as lines for a terminal.
  returned: success
  type: list
  elements: str
msg:
  description: Why there is no inventory, if there is none.
  returned: success
  type: str
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "hosts": {"type": "dict", "required": True},
    "path": {"type": "path", "required": True},
    "overwrite": {"type": "bool", "default": False},
    "keep_names": {"type": "bool", "default": False},
    "knowledge_dirs": {"type": "list", "elements": "path", "default": []},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
