#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kube_gateway
short_description: Offer all served models under one address
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Reads which instances are served, and applies a gateway (LiteLLM's proxy) whose configuration follows from them - a ConfigMap, a Secret
    with all keys, a NetworkPolicy, a Service and a Deployment.
  - A change rolls the gateway; streams of the old pod go on until they have ended.
  - A key never appears in a result, diff or log.
  - Runs on the controller through its action plugin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.kube
options:
  gateway:
    description:
      - The owner's choices - C(namespace), C(repository), C(version) and C(digest) of the image, C(service_type), C(node_port), C(port),
        C(timeout_s), C(node), C(requests), C(memory_limit), C(image_pull_secrets).
      - An image without a digest and a version that is known to be bad are refused.
    type: dict
    required: true
  api_key:
    description: The key that the gateway requires. There is no gateway without one.
    type: str
    required: true
  tls_certificate:
    description: The text of a certificate chain (PEM). Without it, the gateway speaks HTTP.
    type: str
    default: ""
  tls_key:
    description: The text of the certificate's private key (PEM).
    type: str
    default: ""
  handler:
    description: The Python text that turns an unreachable group into status 503.
    type: str
    required: true
  without:
    description:
      - Services (C(namespace/name)) that are about to stop. They get no more requests by a name that another group has, too.
    type: list
    elements: str
    default: []
seealso:
  - module: dgxspark.cluster.kube_serving
"""

EXAMPLES = r"""
- name: Offer what is served
  dgxspark.cluster.kube_gateway:
    gateway:
      version: "{{ model_gateway_version }}"
      digest: "{{ model_gateway_digest }}"
    api_key: "{{ model_gateway_api_key }}"
    handler: "{{ lookup('ansible.builtin.file', 'group_down.py') }}"
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
objects:
  description: What was done with each object, as C(Kind/namespace/name) and V(changed), V(unchanged) or V(would be created).
  type: list
  elements: str
  returned: success
left_out:
  description: The Services of O(without) that have left a name.
  type: list
  elements: str
  returned: success
models:
  description: The names that the gateway offers, each with the Services (C(namespace/name)) that answer to it.
  type: dict
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "gateway": {"type": "dict", "required": True},
    "api_key": {"type": "str", "required": True, "no_log": True},
    "tls_certificate": {"type": "str", "default": ""},
    "tls_key": {"type": "str", "default": "", "no_log": True},
    "handler": {"type": "str", "required": True},
    "without": {"type": "list", "elements": "str", "default": []},
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
