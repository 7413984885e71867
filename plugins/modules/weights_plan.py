#!/usr/bin/python
# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: weights_plan
short_description: Decide which node downloads weights, which nodes copy them, and whether there is disk space
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Names the repositories that the ranks of a launch plan (C(model_weights_plan)) load - the model's, and the drafter's where the
    plan speculates with one. Once it is known what the nodes have, it decides how each node gets them.
  - A repository that no node has completely is downloaded by one; all others copy it along a chain over the fabric. A node that has
    it needs nothing.
  - Copies go over VFs that are not the instance's, since those may be in pods.
  - It reads the variables of the role P(dgxspark.cluster.model_weights#role) and the fabric's plan (C(dgxspark_plan)).
extends_documentation_fragment:
  - dgxspark.cluster.attributes.info
  - dgxspark.cluster.attributes.actiongroup
options:
  seen:
    description: >-
      The name under which the ranks' hosts have registered the results of M(dgxspark.cluster.weights_info). Without it, the
      repositories are named, but nothing is decided.
    type: str
  asked:
    description: >-
      The name under which they have registered those of M(dgxspark.cluster.weights_fetch) in check mode, in a loop over RV(repos).
      Without it, disk space for downloads is not checked.
    type: str
  image_gib:
    description: >-
      Disk space in GiB that the engine's image takes afterwards, to be kept free in addition to C(model_weights_disk_reserve_gib).
    type: float
    default: 0
  served:
    description: >-
      Objects of the cluster in which instances have their engines' command (ConfigMaps, as M(dgxspark.cluster.kube_objects) lists
      them). If given, RV(loaded_by) is returned.
    type: list
    elements: dict
seealso:
  - module: dgxspark.cluster.weights_info
  - module: dgxspark.cluster.weights_copy
"""

EXAMPLES = r"""
- name: Name the repositories
  dgxspark.cluster.weights_plan:
  register: wanted
  run_once: true

- name: See what the nodes have
  dgxspark.cluster.weights_info:
    cache_dir: /var/lib/dgxspark/cache
    repos: "{{ wanted.wanted }}"
  register: seen

- name: Decide
  dgxspark.cluster.weights_plan:
    seen: seen
  register: weights
  run_once: true
"""

RETURN = r"""
wanted:
  description: Dictionaries of C(repo) and C(revision), which is null if none is pinned.
  type: list
  elements: dict
  returned: success
repos:
  description: Each repository with C(holder), C(fetch), C(lacking), C(manifest) and C(chain) (a link by host).
  type: list
  elements: dict
  returned: with O(seen)
loaded_by:
  description: The instances that load one of RV(wanted), as C(NAMESPACE/NAME).
  type: list
  elements: str
  returned: with O(served)
moves:
  description: What is transferred, in sentences.
  type: list
  elements: str
  returned: with O(seen)
problems:
  description: What prevents it, in sentences.
  type: list
  elements: str
  returned: with O(seen)
"""

from ansible_collections.dgxspark.cluster.plugins.module_utils.controller_only import controller_only

ARGUMENTS: dict[str, dict[str, object]] = {
    "seen": {"type": "str"},
    "asked": {"type": "str"},
    "image_gib": {"type": "float", "default": 0},
    "served": {"type": "list", "elements": "dict"},
}
main = controller_only(ARGUMENTS)

if __name__ == "__main__":
    main()
