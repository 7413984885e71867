#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: image_inspect
short_description: Inspect an engine's image
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Runs the image once, in a pod on one node - without a GPU, weights, VFs, an API token or a folder of the node - and reads the
    engine and its version, the flags of its own parser, packages, the architectures that torch was built for, and which start-up
    patches it has. The pod is always deleted afterwards.
  - Returns entries of C(images/) and C(engines/) for the owner's folder, valid against their schemas. Nothing is written.
  - The image's output is limited and validated, and refused if it is not what was asked for.
  - Creates no pod in check mode.
  - Runs on the controller through its action plugin.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.kube
  - dgxspark.cluster.serving.knowledge
options:
  image:
    description: The image, by tag or digest.
    type: str
    required: true
  host:
    description: The host on which it runs.
    type: str
    required: true
  folder:
    description: The owner's folder that the entries are for; it need not exist yet.
    type: str
    required: true
  kubernetes:
    description: Namespace, pull policy, secrets and node names, as M(dgxspark.cluster.kube_serving) takes them.
    type: dict
    default: {}
  timeout:
    description: Seconds for the pull and the run together.
    type: int
    default: 7200
seealso:
  - module: dgxspark.cluster.launch_plan
  - module: dgxspark.cluster.kube_pull
"""

EXAMPLES = r"""
- name: Inspect an image
  dgxspark.cluster.image_inspect:
    image: vllm/vllm-openai:nightly
    host: spark1
    folder: "{{ inventory_dir }}/dgxspark"
  register: seen
  run_once: true
  delegate_to: localhost
"""

RETURN = r"""
read:
  description: Whether the image was read; not in check mode.
  type: bool
  returned: success
digest:
  description: The digest of the image that ran.
  type: str
  returned: when it was read
entry:
  description: The entry of C(images/).
  type: dict
  returned: when it was read
table:
  description: The id of the flag table, or none if the parser could not be read; the reason is then in C(unread) of RV(entry).
  type: str
  returned: when it was read
files:
  description: The entries as files, each with its C(path) below the owner's folder and its C(text).
  type: list
  elements: dict
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "image": {"type": "str", "required": True},
    "host": {"type": "str", "required": True},
    "folder": {"type": "str", "required": True},
    "kubernetes": {"type": "dict", "default": {}},
    "timeout": {"type": "int", "default": 7200},
    "knowledge_dirs": {"type": "list", "elements": "path", "default": []},
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
