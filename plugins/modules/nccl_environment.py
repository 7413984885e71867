#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_environment
short_description: Choose the host's environment for NCCL
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns the variables that NCCL, Gloo and the engines need on this host, as P(dgxspark.cluster.nccl_env#filter) returns them for all
    engines, with C(nccl_extra_environment) on top.
  - If cables lead to different neighbours, it also chooses the interface for bootstrap traffic - on the host the one with the
    address C(ansible_host), or else the only one outside the fabric; in a pod C(eth0).
  - Reads the fabric's plan (C(dgxspark_plan)), the host's facts (C(dgxspark_roce)), C(ansible_host), and the variables of the role
    P(dgxspark.cluster.nccl#role).
  - Runs on the controller through its action plugin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  attachment:
    description: Whether the process runs on the host, or in a pod with the VFs attached.
    type: str
    choices: [host, vf]
    default: host
  gids:
    description: The C(gids) that M(dgxspark.cluster.roce_gid) returned for this host. They verify a pinned index (C(nccl_gid_index)).
    type: list
    elements: dict
seealso:
  - plugin: dgxspark.cluster.nccl_env
    plugin_type: filter
  - module: dgxspark.cluster.nccl_host
"""

EXAMPLES = r"""
- name: Choose NCCL's environment
  dgxspark.cluster.nccl_environment:
  register: nccl

- name: Show it
  ansible.builtin.debug:
    var: nccl.environment
"""

RETURN = r"""
seen:
  description: Whether the host's VFs were read. In check mode they may not exist yet.
  type: bool
  returned: success
environment:
  description: The environment variables.
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
