#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kube_webui
short_description: Put a page for people before the gateway
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Applies Open WebUI before the gateway of M(dgxspark.cluster.kube_gateway) - a Secret, a PersistentVolumeClaim, a NetworkPolicy, a
    Service and a Deployment.
  - Nobody can sign up. The owner's account is made at the first start.
  - A key or password never appears in a result, diff or log.
  - Runs on the controller through its action plugin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.kube
options:
  webui:
    description:
      - The owner's choices - C(namespace), C(repository), C(version) and C(digest) of the image, C(admin), C(service_type), C(node_port),
        C(gateway_port), C(timeout_s), C(node), C(requests), C(memory_limit), C(storage), C(storage_class), C(image_pull_secrets).
      - An image without a digest and a page without an owner's account are refused.
    type: dict
    required: true
  gateway_key:
    description: The key that the gateway requires.
    type: str
    required: true
  password:
    description: The password of the first account, of 12 characters to 72 bytes. Used at the first start alone.
    type: str
    required: true
  tls_certificate:
    description: The text of the gateway's certificate chain (PEM), which the page shows, too. Without it, both speak HTTP.
    type: str
    default: ""
  tls_key:
    description: The text of the certificate's private key (PEM).
    type: str
    default: ""
seealso:
  - module: dgxspark.cluster.kube_gateway
"""

EXAMPLES = r"""
- name: Put a page before the gateway
  dgxspark.cluster.kube_webui:
    webui:
      version: "{{ model_gateway_webui_version }}"
      digest: "{{ model_gateway_webui_digest }}"
      admin: "{{ model_gateway_webui_admin }}"
    gateway_key: "{{ model_gateway_api_key }}"
    password: "{{ model_gateway_webui_password }}"
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
objects:
  description: What was done with each object, as C(Kind/namespace/name) and V(changed), V(unchanged) or V(would be created).
  type: list
  elements: str
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "webui": {"type": "dict", "required": True},
    "gateway_key": {"type": "str", "required": True, "no_log": True},
    "password": {"type": "str", "required": True, "no_log": True},
    "tls_certificate": {"type": "str", "default": ""},
    "tls_key": {"type": "str", "default": "", "no_log": True},
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
