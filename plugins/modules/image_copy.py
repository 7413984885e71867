#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: image_copy
short_description: Copy an image from node to node over the fabric, into each one's containerd
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Runs on all nodes of a chain at the same time, as M(dgxspark.cluster.weights_copy) does. Each pulls the image's blobs from the
    node before it, hands them on to the one after it, imports them into its containerd, sees that the digest is there, whole and
    unpacked, and removes what was laid out. The first one has laid it out (M(dgxspark.cluster.image_fetch) with C(share)).
  - A blob counts only when its SHA-256 is its name. What an interrupted run received is gone on with.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.images
  - dgxspark.cluster.parcels
options:
  listing:
    description: What is copied, as M(dgxspark.cluster.image_fetch) returned it.
    type: dict
    required: true
  link:
    description: >-
      The node's place in the chain, as P(dgxspark.cluster.image_plan#filter) returns it - C(name), C(port), C(parent) (name and
      address), C(children), C(listen) and C(patience_s).
    type: dict
    required: true
  token:
    description: The token of this run, the same for all nodes.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Copy along the chain
  dgxspark.cluster.image_copy:
    reference: registry.example/engine:1.2
    listing: "{{ listing }}"
    link: "{{ chain[inventory_hostname] }}"
    token: "{{ token }}"
  async: 86400
  poll: 0
  no_log: true
"""

RETURN = r"""
moved:
  description: Bytes that came over the fabric.
  returned: success
  type: int
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils import placed
from ansible_collections.dgxspark.cluster.plugins.module_utils.images import containerd, have, layout
from ansible_collections.dgxspark.cluster.plugins.module_utils.images.reference import parse
from ansible_collections.dgxspark.cluster.plugins.module_utils.parcels.progress import Progress
from ansible_collections.dgxspark.cluster.plugins.module_utils.parcels.relay import Counter, Link, relay
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError, from_plain


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            **containerd.ARGUMENTS,
            "listing": {"type": "dict", "required": True},
            "link": {"type": "dict", "required": True},
            "token": {"type": "str", "required": True, "no_log": True},
            "reserve_gib": {"type": "float", "default": 0},
            "progress": {"type": "path"},
        },
        supports_check_mode=True,
    )
    given, counter = module.params, Counter()
    try:
        node = containerd.find(**(given["containerd"] or {}))
        made, link = layout.checked(given["listing"], "listing"), from_plain(Link, given["link"], "link")
        wanted = have.Wanted(
            parse(given["reference"]), given["stage_dir"], made.digest, reserve_gib=given["reserve_gib"]
        )
        seen = have.look(node, wanted.reference, made.digest)
        if link.parent:
            have.refuse_no_room(node, wanted, made, keep=not seen.here, lay=True)
        if not module.check_mode:
            with Progress(given["progress"]) as progress:
                progress.phase, progress.total, progress.bytes = "copy", made.size, lambda: counter.moved
                relay(have.laid(wanted, made), link, given["token"], counter)
                if not seen.kept:
                    have.bring(node, wanted, made, progress)
                placed.remove(wanted.stage)
        after = "" if seen.kept else f"{wanted.reference.kept(made.digest)}\n"
        module.exit_json(changed=not seen.kept, moved=counter.moved, diff={"before": "", "after": after})
    except FabricError as exc:
        module.fail_json(msg=str(exc), moved=counter.moved)


if __name__ == "__main__":
    main()
