#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kube_devices
short_description: Check that nodes offer their VFs to pods, and restart the SR-IOV device plugin if they do not
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Compares each node's C(allocatable) with what the SR-IOV device plugin is configured to offer there, or with what ranks request.
  - The plugin discovers devices only when it starts. If it runs and its node offers less, its pod is deleted, once, so that the
    DaemonSet replaces it; if it does not run yet, the module waits for it.
  - Explains why a node still offers less, from the cluster's state and the node's facts (C(dgxspark_roce)).
  - In check mode it checks once, and changes nothing.
  - Runs on the controller through its action plugin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.kube
options:
  hosts:
    description:
      - The hosts to check, with the names of their nodes.
      - By default all hosts of the play; C(k8s_platform_node_names) has node names that differ from the host's.
    type: dict
  ranks:
    description: The ranks that request VFs, as their StatefulSets. By default everything that the plugin is configured to offer counts.
    type: list
    elements: dict
  timeout:
    description: Seconds to wait.
    type: int
    default: 300
  patience:
    description: Seconds to wait for a running plugin and its kubelet, both before the plugin is restarted and after.
    type: int
    default: 20
seealso:
  - module: dgxspark.cluster.kube_wait
"""

EXAMPLES = r"""
- name: Check that the nodes offer the ranks' VFs
  dgxspark.cluster.kube_devices:
    hosts: "{{ served.nodes }}"
    ranks: "{{ served.workers + served.head }}"
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
lacking:
  description: A line for each node that offers less than it should, with the reason.
  type: list
  elements: str
  returned: always
restarted:
  description: The nodes whose plugin was restarted.
  type: list
  elements: str
  returned: always
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "hosts": {"type": "dict"},
    "ranks": {"type": "list", "elements": "dict"},
    "timeout": {"type": "int", "default": 300},
    "patience": {"type": "int", "default": 20},
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
