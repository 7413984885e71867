#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: bundle_fetch
short_description: Download one file for a bundle, and verify its checksum
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Fetches a file, a wheel of a package index, or an image (as an OCI archive that K3s imports under its name) into a bundle's
    folder, and records it in C(bundle.json) there, with size and SHA-256.
  - Complete files stay, partial downloads resume, and files with a wrong checksum are deleted.
  - For an image named only by a tag, the first pull is trusted; its digest is recorded, and kept until O(refresh).
  - In check mode only the sizes are queried.
  - Runs on the controller through its action plugin. Proxies are taken from the environment.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
options:
  folder:
    description: The bundle's folder, on the controller. It is created if it does not exist.
    type: path
    required: true
  artefact:
    description: One entry of what P(dgxspark.cluster.bundle_list#filter) returns.
    type: dict
    required: true
  mirrors:
    description: Your mirrors, by registry name (V(docker.io)) or URL prefix (V(https://github.com)).
    type: dict
    default: {}
  logins:
    description: A file with registry logins, in the format of Docker's C(config.json).
    type: path
  refresh:
    description: Resolve the tags again.
    type: bool
    default: false
requirements:
  - httpx (Python library, on the controller)
seealso:
  - plugin: dgxspark.cluster.bundle_list
    plugin_type: filter
  - plugin: dgxspark.cluster.bundle
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Fetch what is missing
  dgxspark.cluster.bundle_fetch:
    folder: /srv/bundle
    artefact: "{{ item }}"
  loop: "{{ {'k3s': 'v1.36.4+k3s1'} | dgxspark.cluster.bundle_list }}"
"""

RETURN = r"""
said:
  description: The artefact's size, and in check mode where it would come from.
  returned: success
  type: str
artefact:
  description: The artefact as the bundle has it, with C(sha256), C(size) and an image's C(digest).
  returned: when the bundle has it
  type: dict
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "folder": {"type": "path", "required": True},
    "artefact": {"type": "dict", "required": True},
    "mirrors": {"type": "dict", "default": {}},
    "logins": {"type": "path"},
    "refresh": {"type": "bool", "default": False},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
