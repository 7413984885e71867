#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: image_info
short_description: Read whether a node's containerd has an image
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Says which digest an image stands for on this node, whether all of it is there and unpacked, and how much room there is. A tag
    stands for what it stood for when this collection put it there, else for what the node has of that tag; no registry is asked.
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.images
seealso:
  - module: dgxspark.cluster.image_fetch
  - module: dgxspark.cluster.image_copy
"""

EXAMPLES = r"""
- name: See whether the node has it
  dgxspark.cluster.image_info:
    reference: registry.example/engine:1.2
"""

RETURN = r"""
digest:
  description: What the reference stands for here. None where nobody has said so yet.
  returned: success
  type: str
here:
  description: Whether all of it is there, unpacked, under whatever name.
  returned: success
  type: bool
kept:
  description: Whether it is there under the name by which the kubelet looks for a digest.
  returned: success
  type: bool
listing:
  description: What this node needs of it - C(digest), C(kind), C(platform) and C(blobs) with C(digest) and C(size). None where it is not there.
  returned: success
  type: dict
total:
  description: Bytes of all blobs.
  returned: success
  type: int
platform:
  description: What the node runs, as images name it.
  returned: success
  type: str
staged:
  description: Whether something is left of a run that was interrupted.
  returned: success
  type: bool
rooms:
  description: The free room where containerd keeps images (C(root)) and where they are laid out (C(stage)), each C(device) and C(free_mib).
  returned: success
  type: dict
"""

import pathlib

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils.images import containerd, have
from ansible_collections.dgxspark.cluster.plugins.module_utils.images.reference import parse
from ansible_collections.dgxspark.cluster.plugins.module_utils.images.room import room
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError, to_plain


def main() -> None:
    """Read the node and return it."""
    module = AnsibleModule(argument_spec=containerd.ARGUMENTS, supports_check_mode=True)
    stage = module.params["stage_dir"]
    try:
        node = containerd.find(**(module.params["containerd"] or {}))
        seen = have.look(node, parse(module.params["reference"]))
        made = node.listing(seen.digest) if seen.digest and seen.here else None
        module.exit_json(
            changed=False,
            **to_plain(seen),
            listing=to_plain(made) if made else None,
            total=made.size if made else 0,
            platform=node.platform,
            staged=pathlib.Path(stage).exists(),
            rooms={"root": room(node.root), "stage": room(stage)},
        )
    except FabricError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
