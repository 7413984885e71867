#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kube_change
short_description: Decide whether to keep, start or replace an instance
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Compares the ranks in the cluster with the planned ones, by the checksum of everything they are started with.
  - Ranks of two plans do not work together, so a group is kept, started, or replaced as a whole.
  - A group of this plan is also replaced if its containers run different images, or another image than the one pulled
    first.
  - Says why the planned ranks could not start, before anything is stopped for them - nodes that are not in the cluster, not ready
    or cordoned, and network attachments that do not exist.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.kube
  - dgxspark.cluster.kube.instance
options:
  served:
    description: The planned objects, as M(dgxspark.cluster.kube_serving) returns them.
    type: dict
    required: true
  restart:
    description: Replace the group even if its plan is unchanged.
    type: bool
    default: false
  to_come:
    description: Objects to treat as existing, in check mode those that this run would create.
    type: list
    elements: dict
    default: []
  judge:
    description: Whether to look for RV(problems), and to check which image the ranks run (RV(ran)).
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Decide what happens to the instance
  dgxspark.cluster.kube_change:
    served: "{{ served }}"
    namespace: dgx-serving
    instance: default
  register: change
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
action:
  description: V(none), V(start) or V(replace).
  type: str
  returned: success
old:
  description: The checksum of the plan that is served, null where there is none or more than one.
  type: str
  returned: success
restore:
  description: The ranks of that plan, in a form that can be restored.
  type: list
  elements: dict
  returned: success
policies:
  description: NetworkPolicies, Roles and RoleBindings of these ranks, to be restored with them.
  type: list
  elements: dict
  returned: success
before:
  description: What the planned ranks need, to be applied first; running ranks are not affected.
  type: list
  elements: dict
  returned: success
switched:
  description:
    - What the planned ranks also need, but what must not be applied before the ranks to be replaced are gone, since it applies to
      those, too - NetworkPolicy, Role and RoleBinding. Empty if no ranks are replaced.
  type: list
  elements: dict
  returned: success
stale:
  description: What is no longer needed once the new group is ready.
  type: list
  elements: dict
  returned: success
there:
  description: The StatefulSets, ConfigMaps, NetworkPolicies, Roles and RoleBindings that the instance has.
  type: list
  elements: dict
  returned: success
ran:
  description: Which image the existing ranks run, as RV(dgxspark.cluster.kube_running#module:image); empty without O(judge).
  type: dict
  returned: success
problems:
  description: A sentence for each reason why ranks could not start, with what to do.
  type: list
  elements: str
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "served": {"type": "dict", "required": True},
    "restart": {"type": "bool", "default": False},
    "to_come": {"type": "list", "elements": "dict", "default": []},
    "judge": {"type": "bool", "default": True},
    "namespace": {"type": "str", "required": True},
    "instance": {"type": "str", "required": True},
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
