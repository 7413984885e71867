#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kube_multus
short_description: Wait until Multus runs on nodes
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - A pod that starts before Multus runs on its node gets only the cluster network for its lifetime. So ranks start only once
    Multus has a ready pod on each of their nodes, ours or, without one, that of others.
  - If the API does not answer, it is queried again until the timeout; in check mode only once.
  - Runs on the controller through its action plugin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.kube
options:
  hosts:
    description: The hosts to check, with the names of their nodes.
    type: dict
    required: true
  timeout:
    description: Seconds to wait.
    type: int
    default: 300
seealso:
  - module: dgxspark.cluster.kube_devices
"""

EXAMPLES = r"""
- name: Wait for Multus on the ranks' nodes
  dgxspark.cluster.kube_multus:
    hosts: "{{ served.nodes }}"
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
lacking:
  description: The nodes without a ready Multus pod.
  type: list
  elements: str
  returned: always
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "hosts": {"type": "dict", "required": True},
    "timeout": {"type": "int", "default": 300},
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
