# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: bundle_list
short_description: List what a site needs to download, with checksums
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - K3s and its images, the images of Multus and of the device plugins, the CNI plugins, the engine's image, that of the NCCL
    benchmark, and the wheels of huggingface_hub, each with its source, what identifies it, and who needs it.
  - Made from C(knowledge/k3s), C(knowledge/platform), C(knowledge/python) and the model's profile. Nothing is contacted.
positional: knowledge_dirs
options:
  _input:
    description: >-
      What the owner has chosen; what is left out is not needed. C(k3s), its version, for C(architectures) of its hosts, with
      C(checksums); C(kubernetes), the platform's choices as M(dgxspark.cluster.kube_platform) has them, and whether the fabric has
      C(vfs); C(profile) with C(overrides), or C(image), of the engine; C(hub), the version of huggingface_hub; C(bench), the image
      of the NCCL benchmark's pods; C(gateway) and C(webui), the images of the gateway and of its page; C(spark), the Sparks'
      architecture.
    type: dict
    required: true
  knowledge_dirs:
    description: Your knowledge folders, on top of the shipped one.
    type: list
    elements: str
    default: []
requirements:
  - jsonschema (Python library, on the controller)
"""

EXAMPLES = r"""
- name: Show what K3s needs from outside
  ansible.builtin.debug:
    msg: "{{ {'k3s': 'v1.36.4+k3s1', 'architectures': ['arm64', 'amd64']} | dgxspark.cluster.bundle_list }}"
"""

RETURN = r"""
_value:
  description: >-
    For each artefact, C(kind) (V(file), V(image) or V(python)), C(name), C(version), C(source), C(path) below the bundle's folder,
    C(arch), C(sha256), C(listed) (the list of checksums that names it), C(digest), C(size) in bytes where it is known, and
    C(needed_by).
  type: list
  elements: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"bundle_list": as_filter("bundle_list", "bundle.wanted:artefacts")}
