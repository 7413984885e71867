#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kube_image_room
short_description: Check that nodes without an engine's image have disk space for it
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Checks the disk on which containerd keeps images against the image's size, as another node lists it, or else an assumed one;
    against the space that must stay free; and against the disk usage from which on a kubelet removes unused images.
  - It reads the launch plan (C(k8s_dgx_plan)) and the variables of the role P(dgxspark.cluster.k8s_dgx#role).
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  image:
    description: The image, as ranks request it.
    type: str
    required: true
  nodes:
    description: The cluster's nodes, as the API returns them.
    type: list
    elements: dict
    required: true
  mounts:
    description: >-
      The name under which hosts have registered their mounts, from M(ansible.builtin.setup). A host that has none is not checked.
    type: str
"""

EXAMPLES = r"""
- name: Find the nodes that lack the image
  dgxspark.cluster.kube_image_room:
    image: "{{ image }}"
    nodes: "{{ nodes.objects }}"
  register: room
  run_once: true
"""

RETURN = r"""
lacking:
  description: Hosts that lack the image.
  type: list
  elements: str
  returned: success
need_gib:
  description: Disk space in GiB that the image takes on a node that lacks it.
  type: float
  returned: success
problems:
  description: Why nodes do not have the space, as sentences.
  type: list
  elements: str
  returned: success
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "image": {"type": "str", "required": True},
    "nodes": {"type": "list", "elements": "dict", "required": True},
    "mounts": {"type": "str"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
