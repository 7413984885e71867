#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_environment
short_description: Decide on the host's environment for NCCL
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns the variables that NCCL, Gloo and the engines need on this host, as P(dgxspark.cluster.nccl_env#filter) makes them for all
    engines, with C(nccl_extra_environment) on top.
  - Where cables lead to different neighbours, it chooses the interface for start-up traffic. On the host that is the one that has
    C(ansible_host), or else the only one beside the fabric's; in a pod it is C(eth0).
  - It reads the fabric's plan (C(dgxspark_plan)), the host's facts (C(dgxspark_roce)), C(ansible_host), and the variables of the role
    P(dgxspark.cluster.nccl#role).
  - Runs on the controller, by its action plugin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  attachment:
    description: Whether the process is the host's own, or runs in a pod that is given the VFs.
    type: str
    choices: [host, vf]
    default: host
  gids:
    description: The C(gids) that M(dgxspark.cluster.roce_gid) returned for this host. They prove a pinned index (C(nccl_gid_index)).
    type: list
    elements: dict
seealso:
  - plugin: dgxspark.cluster.nccl_env
    plugin_type: filter
  - module: dgxspark.cluster.nccl_host
"""

EXAMPLES = r"""
- name: Decide on NCCL's environment
  dgxspark.cluster.nccl_environment:
  register: nccl

- name: Show it
  ansible.builtin.debug:
    var: nccl.environment
"""

RETURN = r"""
seen:
  description: Whether the host's VFs were read. In check mode they may not be there yet.
  type: bool
  returned: success
environment:
  description: The variables.
  type: dict
  returned: when RV(seen)
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "attachment": {"type": "str", "choices": ["host", "vf"], "default": "host"},
    "gids": {"type": "list", "elements": "dict"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
