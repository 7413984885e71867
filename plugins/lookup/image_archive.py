# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: image_archive
short_description: Read which image an archive on the controller has
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Reads an OCI archive's index and manifests, as M(dgxspark.cluster.image_fetch) in check mode does on a node.
options:
  _terms:
    description: The archive on the controller.
    type: list
    elements: path
    required: true
  reference:
    description: The image that is wanted, as the owner names it.
    type: str
    required: true
  platform:
    description: What the nodes run, as images name it.
    type: str
    default: linux/arm64
"""

EXAMPLES = r"""
- name: See what the archive has
  ansible.builtin.debug:
    msg: "{{ lookup('dgxspark.cluster.image_archive', 'engine.tar', reference='registry.example/engine:1.2').digest }}"
"""

RETURN = r"""
_raw:
  description: For each archive C(digest), C(total) (bytes of its blobs), C(listing) and C(bytes) (of the archive itself).
  type: list
  elements: dict
"""

import pathlib
import typing as t

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.dgxspark.cluster.plugins.module_utils.images import layout
from ansible_collections.dgxspark.cluster.plugins.module_utils.images.reference import parse
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError, to_plain


class LookupModule(LookupBase):  # type: ignore[misc,unused-ignore]
    """`lookup('dgxspark.cluster.image_archive', path, reference=…)`."""

    def run(self, terms: list[t.Any], variables: t.Any = None, **kwargs: t.Any) -> list[t.Any]:
        """Return what each archive has."""
        self.set_options(var_options=variables, direct=kwargs)
        wanted, platform = self.get_option("reference"), self.get_option("platform")
        found = []
        try:
            for path in map(str, terms):
                made = layout.archived(path, parse(wanted), platform)
                size = pathlib.Path(path).stat().st_size
                found.append({"digest": made.digest, "total": made.size, "listing": to_plain(made), "bytes": size})
        except FabricError as exc:
            raise AnsibleLookupError(f"dgxspark.cluster.image_archive: {exc}") from exc
        return found
