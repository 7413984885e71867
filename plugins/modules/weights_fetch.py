#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: weights_fetch
short_description: Install a model's weights on a node, from the hub or a folder, or remove them
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Downloads a repository with the hub's own library (C(snapshot_download)) into the layout of its cache, verifies every file
    against the hub's list (SHA-256 of LFS files, git id of the others), and writes a list next to it.
  - Complete files of an interrupted download stay; the next run continues with the others.
  - In check mode the hub is asked what would be downloaded, and nothing is transferred.
  - Runs for as long as the download takes. Start it with C(async); M(dgxspark.cluster.weights_wait) shows its progress.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.weights
  - dgxspark.cluster.transfer
options:
  state:
    description: V(absent) removes only what this collection's lists name.
    type: str
    choices: [present, absent]
    default: present
  repo:
    description: The repository, such as V(example-org/example-model).
    type: str
    required: true
  revision:
    description: A commit, branch or tag. By default the current V(main).
    type: str
  source:
    description: >-
      A folder on the node that has the weights with their list, in the layout of the hub's cache (C(models--ORG--NAME)). In that
      case nothing is downloaded.
    type: path
  python:
    description: A Python on the node that has huggingface_hub.
    type: path
    default: /usr/bin/python3
  ignore:
    description: Patterns of files to leave out.
    type: list
    elements: str
    default: []
  environment:
    description: Environment variables for the library, such as C(HTTPS_PROXY) or C(HF_ENDPOINT). No secrets.
    type: dict
    default: {}
  token:
    description: The hub's token. While the module runs, it is in a file that only root can read.
    type: str
seealso:
  - module: dgxspark.cluster.weights_copy
"""

EXAMPLES = r"""
- name: Download the weights
  dgxspark.cluster.weights_fetch:
    cache_dir: /var/lib/dgxspark/cache
    repo: example-org/example-model
    python: /var/lib/dgxspark/hub/bin/python
  async: 86400
  poll: 0
"""

RETURN = r"""
manifest:
  description: The list - C(repo), C(revision), C(ignore) and C(files) with C(path), C(blob), C(size) and C(sha256).
  returned: with O(state=present), and not in check mode
  type: dict
prospect:
  description: In check mode the commit (C(revision)), its C(total) bytes and those C(missing).
  returned: in check mode
  type: dict
"""

import os
import pathlib
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer import parcel
from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer.progress import Progress
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, text_diff, to_plain
from ansible_collections.dgxspark.cluster.plugins.module_utils.weights import cache, fetch


def token_file(module: t.Any) -> str | None:
    """Write the token to a file that only root can read, in the module's own folder, which is removed when it ends."""
    if not module.params["token"]:
        return None
    path = pathlib.Path(module.tmpdir) / "hub-token"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(module.params["token"])
    return str(path)


def present(module: t.Any) -> dict[str, t.Any]:
    """Make sure that the weights are present; return the module's result."""
    given = module.params
    root, repo = given["cache_dir"], given["repo"]
    wanted = fetch.FetchRequest(
        root=root,
        repo=repo,
        token=token_file(module),
        ignore=tuple(given["ignore"]),
        environment={key: str(value) for key, value in given["environment"].items()},
        **{key: given[key] for key in ("revision", "source", "python", "reserve_gib", "verify")},
    )
    before = cache.current(root, repo)
    there = cache.read(root, repo, given["revision"])
    whole = there is not None and parcel.state(cache.parcel(root, there)).whole and not given["verify"]
    if module.check_mode:
        found = fetch.prospect(wanted)
        change = text_diff(repo, f"{before}\n", f"{found['revision']}\n")
        return {"changed": not whole, "prospect": found, "diff": change}
    if whole and there is not None:
        return {"changed": False, "manifest": to_plain(there)}
    with Progress(given["progress"]) as progress:
        manifest = fetch.fetch(wanted, progress, module.warn)
    return {"changed": manifest != there or not whole, "manifest": to_plain(manifest)}


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "cache_dir": {"type": "path", "required": True},
            "repo": {"type": "str", "required": True},
            "revision": {"type": "str"},
            "source": {"type": "path"},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "ignore": {"type": "list", "elements": "str", "default": []},
            "environment": {"type": "dict", "default": {}},
            "token": {"type": "str", "no_log": True},
            "reserve_gib": {"type": "float", "default": 0},
            "verify": {"type": "bool", "default": False},
            "progress": {"type": "path"},
        },
        supports_check_mode=True,
    )
    try:
        if module.params["state"] == "absent":
            gone = cache.remove(module.params["cache_dir"], module.params["repo"], dry=module.check_mode)
            diff = {"before": "".join(f"{change.subject}\n" for change in gone), "after": ""}
            module.exit_json(changed=bool(gone), diff=diff)
        module.exit_json(**present(module))
    except CollectionError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
