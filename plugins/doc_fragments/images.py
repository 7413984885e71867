# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations


class ModuleDocFragment:
    # What every module takes that works on images.
    DOCUMENTATION = r"""
options:
  reference:
    description: The image, such as V(registry.example/engine:1.2) or, best, V(registry.example/engine@sha256:…).
    type: str
    required: true
  stage_dir:
    description: >-
      A folder for this alone, on the node, in which an image is laid out while it is handed on. It is removed when nothing is to
      be handed on any more.
    type: path
    default: /var/lib/dgxspark/cache/images
  containerd:
    description: How to speak to the node's containerd, where it is neither K3s's nor the system's at their usual places.
    type: dict
    default: {}
    suboptions:
      ctr:
        description: The program C(ctr), or C(k3s), which has it.
        type: path
      address:
        description: containerd's socket.
        type: path
      root:
        description: Where containerd keeps what it has, to see how much room there is.
        type: path
      hosts_dir:
        description: The folder of registries' mirrors (C(certs.d)). K3s makes it of its C(registries.yaml).
        type: path
      snapshotter:
        description: The snapshotter that the kubelet's pods use. Empty for containerd's default.
        type: str
"""
