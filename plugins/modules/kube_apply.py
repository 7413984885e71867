#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kube_apply
short_description: Apply objects to the cluster by server-side apply
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Passes the objects to M(kubernetes.core.k8s), all in one step and with one field manager, and shows the diff of each.
  - In check mode the API server itself reports what would change. An object that it cannot judge yet, because this run would create
    its namespace or kind, is reported as one that would be created.
  - An object that exists without our label is another's. A namespace or CRD is then used as it is; any other fails the task before
    anything is applied.
  - A change to an object that is being deleted would be lost. The module waits up to a minute until it is gone, then applies.
  - Runs on the controller through its action plugin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.kube
options:
  objects:
    description: The objects, in the order in which to apply them.
    type: list
    elements: dict
    required: true
  after:
    description: Objects that earlier steps of the same run create. Used only in check mode.
    type: list
    elements: dict
    default: []
  wait_for:
    description: >-
      A condition, such as V(Established) for CustomResourceDefinitions, that each object must meet within 60 seconds.
    type: str
"""

EXAMPLES = r"""
- name: Create the ranks
  dgxspark.cluster.kube_apply:
    objects: "{{ served.workers + served.head }}"
    after: "{{ served.common }}"
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
objects:
  description: >-
    What was done about each object, as C(Kind/namespace/name), or C(Kind/name) without a namespace, and V(changed), V(unchanged),
    V(would be created) or V(used as it is).
  type: list
  elements: str
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "objects": {"type": "list", "elements": "dict", "required": True},
    "after": {"type": "list", "elements": "dict", "default": []},
    "wait_for": {"type": "str"},
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
