# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: kube_change
short_description: Decide what happens to an instance that is, or is not, being served
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Compares the ranks in the cluster with those planned, by the checksum of all that they are started with.
  - Ranks of two plans do not work together, so a group is kept, started, or replaced as a whole.
positional: there, restart
options:
  _input:
    description: The planned objects, as P(dgxspark.cluster.kube_serving#filter) returns it.
    type: dict
    required: true
  there:
    description: The StatefulSets and ConfigMaps of the instance in the cluster.
    type: list
    elements: dict
    required: true
  restart:
    description: Replace the group although its plan is the same.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Tell what would happen
  ansible.builtin.debug:
    msg: "{{ (served | dgxspark.cluster.kube_change(read.resources)).action }}"
"""

RETURN = r"""
_value:
  description: >-
    C(action) (V(none), V(start) or V(replace)); C(old), the checksum of the plan that is served; C(restore), its ranks as
    they can be put back; C(stale), what nobody needs once the new group is ready.
  type: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"kube_change": as_filter("kube_change", "kube.rollout:decide")}
