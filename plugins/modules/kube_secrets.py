#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kube_secrets
short_description: Apply the Secrets that an instance's ranks read, or remove all others
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - The ranks read two - one with the hub's token, if they download weights themselves, and one with the API key. The latter's name
    is derived from the key by P(dgxspark.cluster.kube_api_key#filter).
  - Secrets are found by their instance's labels, so those of failed runs are found, too.
  - A Secret's content never appears in a result, diff or log.
  - Runs on the controller through its action plugin.
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
      - V(present) applies the Secrets for O(hf_token) and O(api_key), as M(dgxspark.cluster.kube_apply) does.
      - V(pruned) removes all other Secrets of the instance; all of them if neither is set.
    type: str
    choices: [present, pruned]
    default: present
  hf_token:
    description: The hub's token. Without it, ranks read none.
    type: str
  api_key:
    description: The API key. Without it, the API is open; an empty one is refused.
    type: str
  after:
    description: Objects that earlier steps of the same run create. Used in check mode only.
    type: list
    elements: dict
    default: []
seealso:
  - module: dgxspark.cluster.kube_serving
"""

EXAMPLES = r"""
- name: Apply the Secret with the API key
  dgxspark.cluster.kube_secrets:
    namespace: dgx-serving
    instance: default
    api_key: "{{ k8s_dgx_api_key }}"
  no_log: true
  run_once: true
  delegate_to: localhost

- name: Remove the instance's Secrets
  dgxspark.cluster.kube_secrets:
    state: pruned
    namespace: dgx-serving
    instance: default
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
objects:
  description: What was done with each Secret, as C(Secret/namespace/name) and V(changed), V(unchanged) or V(would be created).
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
