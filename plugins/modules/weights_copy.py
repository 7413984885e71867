#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: weights_copy
short_description: Copy verified weights from node to node over the fabric
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Runs on all nodes of a chain at the same time. Each pulls from the node before it and serves the one after it, over HTTP with
    byte ranges on its own fabric address, to any client that has the run's token, until all have everything.
  - A file counts only if its SHA-256 matches the list. An interrupted run is resumed.
  - Start it with C(async); M(dgxspark.cluster.weights_wait) shows its progress.
extends_documentation_fragment:
  - dgxspark.cluster.attributes
  - dgxspark.cluster.attributes.actiongroup
  - dgxspark.cluster.weights
  - dgxspark.cluster.transfer
options:
  manifest:
    description: The list, as M(dgxspark.cluster.weights_fetch) returned it.
    type: dict
    required: true
  link:
    description: >-
      The node's place in the chain, as M(dgxspark.cluster.weights_plan) returns it - C(name), C(port), C(parent) (name and
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
  dgxspark.cluster.weights_copy:
    cache_dir: /var/lib/dgxspark/cache
    manifest: "{{ manifest }}"
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
read:
  description: Bytes of existing files that were read to verify them.
  returned: success
  type: int
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer import parcel
from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer.progress import Progress
from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer.relay import Counter, Link, relay
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain
from ansible_collections.dgxspark.cluster.plugins.module_utils.weights import cache


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "cache_dir": {"type": "path", "required": True},
            "manifest": {"type": "dict", "required": True},
            "link": {"type": "dict", "required": True},
            "token": {"type": "str", "required": True, "no_log": True},
            "reserve_gib": {"type": "float", "default": 0},
            "verify": {"type": "bool", "default": False},
            "progress": {"type": "path"},
        },
        supports_check_mode=True,
    )
    given, counter = module.params, Counter()
    try:
        manifest = cache.checked(given["manifest"], "manifest")
        goal = cache.parcel(given["cache_dir"], manifest)
        if given["verify"] and not module.check_mode:
            parcel.break_seal(goal)
        state = parcel.state(goal)
        parcel.refuse_full_disk(given["cache_dir"], state.missing, given["reserve_gib"], manifest.repo)
        diff = {key: "".join(f"{c.subject}: {getattr(c, key)}\n" for c in state.changes) for key in ("before", "after")}
        if not module.check_mode:
            link = from_plain(Link, given["link"], "link")
            with Progress(given["progress"]) as progress:
                progress.phase, progress.total = "copy", state.missing
                progress.bytes = lambda: counter.moved
                relay(goal, link, given["token"], counter)
    except CollectionError as exc:
        module.fail_json(msg=str(exc), moved=counter.moved)
    module.exit_json(changed=not state.whole, moved=counter.moved, read=counter.read, diff=diff)


if __name__ == "__main__":
    main()
