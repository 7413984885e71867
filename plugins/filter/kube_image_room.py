# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: kube_image_room
short_description: Tell whether nodes that lack an engine's image have the room for it
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Judges the disk on which containerd keeps images by the image's size, as another node lists it, else by what is assumed; by the room
    that is to stay free; and by the share of the disk from which on a kubelet removes images of which nothing runs.
positional: nodes, names, mounts, choices
options:
  _input:
    description: The image, as ranks ask for it.
    type: str
    required: true
  nodes:
    description: The cluster's nodes, as the API returns them.
    type: list
    elements: dict
    required: true
  names:
    description: The name of each host's node.
    type: dict
    required: true
  mounts:
    description: The mounts of each host, as Ansible's facts have them. A host that is not in it is not judged.
    type: dict
    required: true
  choices:
    description: C(path) (where containerd keeps images), C(reserve_gib), C(assumed_gib) (for an image that no node lists) and C(gc_percent).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Judge the room
  ansible.builtin.debug:
    msg: "{{ image | dgxspark.cluster.kube_image_room(nodes, {'spark1': 'spark1'}, {}, {'path': '/var/lib/rancher'}) }}"
"""

RETURN = r"""
_value:
  description: C(lacking) (hosts), C(need_gib) (room that the image takes where it is lacking) and C(problems) in words.
  type: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"kube_image_room": as_filter("kube_image_room", "kube.image:room")}
