# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: bundle
short_description: Return the contents of a bundle on the controller
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Reads C(bundle.json) of a folder that M(dgxspark.cluster.bundle_fetch) has filled, and compares it with the files and with what is
    wanted. What is missing or wrong is one error that names each file, what was expected and what was found.
  - For files above 64 MiB, only the sizes are compared here; whatever uses such a file compares its SHA-256.
options:
  _terms:
    description: The bundle's folder. A relative path is relative to where C(ansible-playbook) was started.
    type: list
    elements: str
    required: true
  wanted:
    description: What it must have, as P(dgxspark.cluster.bundle_list#filter) returns it. By default everything that it lists.
    type: list
    elements: dict
  kind:
    description: Return only this kind.
    type: str
    choices: [file, image, python]
  archives:
    description: Return only the images, as the role k3s takes them (C(k3s_image_archives)).
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Show which images a bundle has
  ansible.builtin.debug:
    msg: "{{ lookup('dgxspark.cluster.bundle', '/srv/bundle', kind='image') | map(attribute='source') }}"
"""

RETURN = r"""
_raw:
  description: A list for each folder - the artefacts, as P(dgxspark.cluster.bundle_list#filter) has them, with C(file), their absolute path.
  type: list
  elements: list
"""

import os
import typing as t

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain, to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle import manifest
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle.wanted import Artefact


class LookupModule(LookupBase):  # type: ignore[misc,unused-ignore]
    """`lookup('dgxspark.cluster.bundle', folder, wanted=…)`."""

    def run(self, terms: list[t.Any], variables: t.Any = None, **kwargs: t.Any) -> list[t.Any]:
        """Return the artefacts of each bundle."""
        self.set_options(var_options=variables, direct=kwargs)
        asked, archives = self.get_option("wanted"), self.get_option("archives")
        kind = "image" if archives else self.get_option("kind")
        try:
            folders = [os.path.abspath(os.path.expanduser(str(term))) for term in terms]  # noqa: PTH100, PTH111 - as text
            found = [self._has(folder, asked, kind) for folder in folders]
        except CollectionError as exc:
            raise AnsibleLookupError(f"dgxspark.cluster.bundle: {exc}") from None  # Ansible would print the causes, too
        if archives:
            return [[{"path": each["file"], "sha256": each["sha256"]} for each in has] for has in found]
        return found

    def _has(self, folder: str, asked: list[t.Any] | None, kind: str | None) -> list[dict[str, t.Any]]:
        every = manifest.read(folder).artefacts
        wanted = every if asked is None else [from_plain(Artefact, each, "wanted") for each in asked]
        found = manifest.checked(folder, [each for each in wanted if kind in (None, each.kind)])
        return [{**to_plain(each), "file": f"{folder}/{each.path}"} for each in found]
