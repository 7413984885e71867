# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: kube_kept
short_description: Keep what an instance has in the cluster, to serve it again as it is
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns the objects of an instance without what the server wrote into them, in the form of
    P(dgxspark.cluster.kube_serving#filter), so that P(dgxspark.cluster.kube_change#filter) takes it.
positional: instance
options:
  _input:
    description: Everything of the instance in the cluster, as the API returns it.
    type: list
    elements: dict
    required: true
  instance:
    description: Its name.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Keep what serves
  ansible.builtin.copy:
    content: "{{ found.resources | dgxspark.cluster.kube_kept('default') | to_nice_json }}"
    dest: before.json
    mode: "0600"
"""

RETURN = r"""
_value:
  description: C(name), C(plan), C(head), C(workers), C(common) and C(bounds). C(head) is empty where nothing is served.
  type: dict
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"kube_kept": as_filter("kube_kept", "kube.rollout:kept")}
