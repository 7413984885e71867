#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: k3s_join
short_description: Ask an existing K3s cluster whether nodes can join it, or remove one from it
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Proves the server's CA with the digest that the join token has, asks the server with the token for its networks, and the API for
    its nodes and their release. It changes nothing but what O(leaves) says.
  - Fails if the server cannot be reached, is no K3s, or is another cluster's, and for a token's file that others can read or that has
    the servers' token. A token that the server does not know fails in M(dgxspark.cluster.k3s_plan), for nodes that have not joined yet.
  - It runs on the controller. The token is never in its result.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.kube
options:
  url:
    description: The URL of one of the cluster's servers, or of a load balancer in front of them.
    type: str
    required: true
  token_file:
    description: A file on the controller, mode 0600, with a join token for agents. Without it, no node can be added.
    type: path
  leaves:
    description: A node's name, to be taken out of the cluster once K3s is gone from it. The server is not asked then.
    type: str
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: The node is named.
requirements:
  - httpx and netaddr (Python libraries, on the controller)
seealso:
  - module: dgxspark.cluster.k3s_plan
"""

EXAMPLES = r"""
- name: Ask the cluster that the nodes join
  dgxspark.cluster.k3s_join:
    url: https://192.0.2.1:6443
    token_file: ~/.kube/theirs.token
    kubeconfig: ~/.kube/theirs.yml
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
cluster:
  description: What the cluster says of itself.
  type: dict
  returned: success
  contains:
    url:
      description: The server's URL.
      type: str
    accepted:
      description: Whether the server knows the token; null without one.
      type: bool
    pods:
      description: The networks of pods, as of C(services).
      type: list
      elements: str
    services:
      description: The networks of services. Both are empty unless the token was accepted.
      type: list
      elements: str
    server:
      description: The oldest release among the cluster's servers; null if no node says that it is one.
      type: str
    nodes:
      description: The names of the cluster's nodes.
      type: list
      elements: str
    ranks:
      description: The names of ranks of models and benchmarks, by node.
      type: dict
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "url": {"type": "str", "required": True},
    "token_file": {"type": "path", "no_log": False},
    "leaves": {"type": "str"},
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
