#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kube_kept
short_description: Save an instance's objects, so that it can be served again
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns the objects in the format of M(dgxspark.cluster.kube_serving), which M(dgxspark.cluster.kube_change) accepts.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.kube
  - dgxspark.cluster.kube.instance
options:
  kinds:
    description: Kinds of objects, each with C(api_version) and C(kind).
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Read what the instance has
  dgxspark.cluster.kube_kept:
    kinds: [{api_version: apps/v1, kind: StatefulSet}, {api_version: v1, kind: ConfigMap}]
    namespace: dgx-serving
    instance: default
  register: read
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
kept:
  description: The objects; C(head) is empty where nothing is served.
  type: dict
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "kinds": {"type": "list", "elements": "dict", "required": True},
    "namespace": {"type": "str", "required": True},
    "instance": {"type": "str", "required": True},
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
