#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: weights_info
short_description: Read which model weights a node has
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns for each repository which commit the node has, whether it is complete and verified, and how many bytes are missing. It
    reads lists, sizes and times, but no large files; it changes nothing.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  cache_dir:
    description: >-
      The folder of caches. Weights are in C(huggingface/hub) below it, in the hub's layout; lists and seals in C(weights), which
      only root may open.
    type: path
    required: true
  repos:
    description: The repositories, each with C(repo) and C(revision) (a commit; without one, the one that engines find).
    type: list
    elements: dict
    required: true
  files:
    description:
      - Names of small JSON files to return for each repository, such as C(config.json). They are checked against the node's own
        list, and refused if they differ from it.
    type: list
    elements: str
    default: []
seealso:
  - module: dgxspark.cluster.weights_fetch
  - module: dgxspark.cluster.weights_copy
"""

EXAMPLES = r"""
- name: See what the node has
  dgxspark.cluster.weights_info:
    cache_dir: /var/lib/dgxspark/cache
    repos: [{repo: example-org/example-model}]
"""

RETURN = r"""
weights:
  description: >-
    By repository C(manifest) (the list of the commit, or null), C(whole) (complete and verified), C(total) and C(missing) bytes.
    With O(files), also C(files): those of the commit, parsed, by name.
  returned: success
  type: dict
free_mib:
  description: The free disk space in MiB.
  returned: success
  type: int
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils import node_files
from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer import parcel
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain
from ansible_collections.dgxspark.cluster.plugins.module_utils.weights import cache


def seen(root: str, asked: dict[str, t.Any], names: t.Sequence[str]) -> dict[str, t.Any]:
    """Return what a node has of one repository. names: of the files to read."""
    manifest = cache.read(root, asked["repo"], asked.get("revision"))
    if manifest is None:
        return {"manifest": None, "whole": False, "total": 0, "missing": 0, "files": {}}
    state = parcel.state(cache.parcel(root, manifest))
    read = cache.small_files(root, manifest, names)
    said = {"whole": state.whole, "total": state.total, "missing": state.missing, "files": read}
    return {"manifest": to_plain(manifest), **said}


def main() -> None:
    """Read the node and return the result."""
    module = AnsibleModule(
        argument_spec={
            "cache_dir": {"type": "path", "required": True},
            "repos": {"type": "list", "elements": "dict", "required": True},
            "files": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    root = module.params["cache_dir"]
    try:
        found = {asked["repo"]: seen(root, asked, module.params["files"]) for asked in module.params["repos"]}
        module.exit_json(changed=False, weights=found, free_mib=node_files.free_mib(root))
    except CollectionError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
