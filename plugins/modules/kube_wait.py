#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kube_wait
short_description: Wait until a group of ranks serves, or is gone, and explain why if not
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Polls the pods of one instance and their events until all ranks of the given plan are ready, or until no pod and no
    StatefulSet is left.
  - Fails at once for a cause that waiting cannot fix, such as an image that cannot be pulled, a failed preflight, or a
    cluster that does not admit the pod, and otherwise when the timeout expires, always with the cause, the pod, the node,
    and what to do.
  - Problems from before it started may have been fixed since. They are reported, and count when they recur.
  - Changes nothing. In check mode it looks once and never fails, since nothing was started.
  - Runs on the controller through its action plugin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.kube
  - dgxspark.cluster.kube.instance
options:
  state:
    description: What to wait for.
    type: str
    choices: [ready, gone]
    default: ready
  plan:
    description: The checksum of the plan that must serve. Required for O(state=ready).
    type: str
  ranks:
    description: How many ranks it has. Required for O(state=ready).
    type: int
  timeout:
    description: Seconds to wait.
    type: int
    default: 1800
  interval:
    description: Seconds between checks.
    type: int
    default: 5
"""

EXAMPLES = r"""
- name: Wait for the first tokens
  dgxspark.cluster.kube_wait:
    namespace: dgx-serving
    instance: default
    plan: "{{ served.plan }}"
    ranks: "{{ served.nodes | length }}"
    timeout: "{{ served.bounds.start_s }}"
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
ready:
  description: The ranks that are ready.
  type: list
  elements: int
  returned: always
findings:
  description: What is wrong with the others, each with C(id), C(severity), C(subject), C(message) and C(remedy).
  type: list
  elements: dict
  returned: always
seconds:
  description: How long it took.
  type: float
  returned: always
timed_out:
  description: Whether the ranks were not ready in time.
  type: bool
  returned: with O(state=ready), when they were not
not_gone:
  description: Whether the pods were not gone in time.
  type: bool
  returned: with O(state=gone), when they were not
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "namespace": {"type": "str", "required": True},
    "instance": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["ready", "gone"], "default": "ready"},
    "plan": {"type": "str"},
    "ranks": {"type": "int"},
    "timeout": {"type": "int", "default": 1800},
    "interval": {"type": "int", "default": 5},
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
}
REQUIRED_IF = [("state", "ready", ["plan", "ranks"])]
main = controller_only(ARGUMENTS, required_if=REQUIRED_IF)

if __name__ == "__main__":
    main()
