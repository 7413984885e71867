#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: image_fetch
short_description: Have an image in a node's containerd, from its registry or from an archive, or take it away
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Pulls an image by digest with containerd's own C(ctr), or imports an OCI archive, into the namespace that the kubelet uses and
    under the name for which it looks (C(REPOSITORY@DIGEST)), and sees that all of it is there and unpacked. A tag is resolved once;
    the digest is kept as a label of the image.
  - In check mode the registry is asked what would come (its manifests alone), or the archive is read, and nothing stays.
  - Runs for as long as the download takes. Start it with C(async), and M(dgxspark.cluster.weights_wait) shows how far it is.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.images
  - dgxspark.cluster.parcels
options:
  state:
    description: >-
      V(absent) removes what this module or M(dgxspark.cluster.image_copy) put there for the reference, and nothing else. An image
      of which containers run stays.
    type: str
    choices: [present, absent]
    default: present
  digest:
    description: What the reference stands for, where that was decided elsewhere.
    type: str
  refresh:
    description: Ask the registry (or the archive) what a tag stands for, also where the node knows what it stood for.
    type: bool
    default: false
  archive:
    description: >-
      An OCI archive on the node, such as C(ctr images export), C(skopeo copy --all) and recent Docker's C(save) make them. Nothing
      is pulled then.
    type: path
  user:
    description: Who pulls, where the registry wants somebody known.
    type: str
  password:
    description: That one's password or token. It is in no argv, no environment and no file of ours.
    type: str
  share:
    description: Lay the image out for M(dgxspark.cluster.image_copy).
    type: bool
    default: false
seealso:
  - module: dgxspark.cluster.image_copy
"""

EXAMPLES = r"""
- name: Have the engine's image
  dgxspark.cluster.image_fetch:
    reference: registry.example/engine:1.2
  async: 86400
  poll: 0
"""

RETURN = r"""
listing:
  description: What the node needs of it - C(digest), C(kind), C(platform) and C(blobs) with C(digest) and C(size).
  returned: when present
  type: dict
prospect:
  description: In check mode C(digest), C(total) (bytes) and C(listing).
  returned: in check mode, when present
  type: dict
stays:
  description: Names that stay, since containers run of them.
  returned: when absent
  type: list
  elements: str
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils.images import containerd, have
from ansible_collections.dgxspark.cluster.plugins.module_utils.images.reference import parse
from ansible_collections.dgxspark.cluster.plugins.module_utils.parcels.progress import Progress
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError, to_plain


def present(module: t.Any, node: containerd.Containerd) -> dict[str, t.Any]:
    """Have the image there; return the module's result."""
    given = module.params
    wanted = have.Wanted(
        reference=parse(given["reference"]),
        stage=given["stage_dir"],
        login=containerd.Login(given["user"], given["password"] or "") if given["user"] else None,
        **{key: given[key] for key in ("digest", "archive", "share", "refresh", "reserve_gib")},
    )
    if module.check_mode:
        made = have.expected(node, wanted)
        changed = not have.look(node, wanted.reference, made.digest).kept
    else:
        with Progress(given["progress"]) as progress:
            made, changed = have.have(node, wanted, progress)
    before, after = ("", f"{wanted.reference.kept(made.digest)}\n") if changed else ("", "")
    result = {"changed": changed, "listing": to_plain(made), "diff": {"before": before, "after": after}}
    if module.check_mode:
        result["prospect"] = {"digest": made.digest, "total": made.size, "listing": to_plain(made)}
    return result


def absent(module: t.Any, node: containerd.Containerd) -> dict[str, t.Any]:
    """Take it away; return the module's result."""
    given = module.params
    gone, stays = have.gone(node, parse(given["reference"]), given["stage_dir"], dry=module.check_mode)
    diff = {"before": "".join(f"{change.subject}\n" for change in gone), "after": ""}
    return {"changed": bool(gone), "stays": stays, "diff": diff}


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            **containerd.ARGUMENTS,
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "digest": {"type": "str"},
            "refresh": {"type": "bool", "default": False},
            "archive": {"type": "path"},
            "user": {"type": "str"},
            "password": {"type": "str", "no_log": True},
            "share": {"type": "bool", "default": False},
            "reserve_gib": {"type": "float", "default": 0},
            "progress": {"type": "path"},
        },
        supports_check_mode=True,
    )
    try:
        node = containerd.find(**(module.params["containerd"] or {}))
        module.exit_json(**(absent if module.params["state"] == "absent" else present)(module, node))
    except FabricError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
