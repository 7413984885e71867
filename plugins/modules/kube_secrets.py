#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kube_secrets
short_description: Apply the Secrets that an instance's ranks read, or remove its others
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - The ranks read two - one with the hub's token, where they fetch for themselves, and one with the key that their API asks for. The
    latter's name is of the key, as P(dgxspark.cluster.kube_api_key#filter) returns it.
  - Secrets are found by the labels of their instance, so those of runs that failed are found, too.
  - What is in a Secret is in no result, difference or log.
  - Runs on the controller, by its action plugin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.kube
  - dgxspark.cluster.kube.instance
attributes:
  diff_mode:
    support: none
options:
  state:
    description:
      - V(present) applies those with O(hf_token) and O(api_key), as M(dgxspark.cluster.kube_apply) does.
      - V(pruned) removes all others of the instance; all of them where neither is given.
    type: str
    choices: [present, pruned]
    default: present
  hf_token:
    description: The hub's token. Without it ranks read none.
    type: str
  api_key:
    description: The API's key. Without it the API is open; an empty one is refused.
    type: str
  after:
    description: Objects that earlier steps of the same run make. They count in check mode only.
    type: list
    elements: dict
    default: []
seealso:
  - module: dgxspark.cluster.kube_serving
"""

EXAMPLES = r"""
- name: Put the key there
  dgxspark.cluster.kube_secrets:
    namespace: dgx-serving
    instance: default
    api_key: "{{ k8s_dgx_api_key }}"
  no_log: true
  run_once: true
  delegate_to: localhost

- name: Remove the instance's secrets
  dgxspark.cluster.kube_secrets:
    state: pruned
    namespace: dgx-serving
    instance: default
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
objects:
  description: What was done about each Secret, as C(Secret/namespace/name) and V(changed), V(unchanged) or V(would be made).
  type: list
  elements: str
  returned: success, where O(state=present)
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "state": {"type": "str", "choices": ["present", "pruned"], "default": "present"},
    "hf_token": {"type": "str", "no_log": True},
    "api_key": {"type": "str", "no_log": True},
    "after": {"type": "list", "elements": "dict", "default": []},
    "namespace": {"type": "str", "required": True},
    "instance": {"type": "str", "required": True},
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
