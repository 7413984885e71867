# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: sriov_changes
short_description: Tell what sriov_vf would change on a node, and what speaks against it
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Compares what M(dgxspark.cluster.roce_info) read with the plan, on the controller. A node that is as planned needs no
    further remote step.
  - The node's files and units must have been asked for. The role P(dgxspark.cluster.sriov_roce#role) knows which.
positional: functions
options:
  _input:
    description: The node, as C(roce) of M(dgxspark.cluster.roce_info).
    type: dict
    required: true
  functions:
    description: The plan's functions for this node. Without any there is nothing to change.
    type: list
    elements: dict
    required: true
  trust:
    description: As of M(dgxspark.cluster.sriov_vf).
    type: bool
  spoof_check:
    description: As of M(dgxspark.cluster.sriov_vf).
    type: bool
  reset_stranded:
    description: As of M(dgxspark.cluster.sriov_vf).
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Show what would change
  ansible.builtin.debug:
    msg: "{{ (dgxspark_roce | dgxspark.cluster.sriov_changes(functions)).changes }}"
  vars:
    functions: "{{ dgxspark_plan.hosts[inventory_hostname].functions }}"
"""

RETURN = r"""
_value:
  description: >-
    C(changes), each with C(subject), C(what), C(before) and C(after), and C(findings), each with C(id), C(severity),
    C(subject), C(message) and C(remedy). One of severity V(error) means that M(dgxspark.cluster.sriov_vf) would refuse.
  type: dict
"""

import functools
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import persist, vfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Node, PlannedFunction, from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.front import as_filter

_source = functools.cache(persist.source)


def sriov_changes(
    node: t.Any,
    functions: list[t.Any],
    trust: bool | None = None,
    spoof_check: bool | None = None,
    reset_stranded: bool = False,
) -> dict[str, t.Any]:
    """Return the differences and the findings of one node."""
    options = vfs.Options(trust, spoof_check, reset_stranded)
    planned = [from_plain(PlannedFunction, f, f"functions[{i}]") for i, f in enumerate(functions)]
    if not planned:
        return {"changes": [], "findings": []}
    now = from_plain(Node, node)
    return {
        "changes": vfs.drift(now, planned, options, _source()),
        "findings": vfs.refusals(now, planned, options),
    }


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"sriov_changes": as_filter("sriov_changes", sriov_changes)}
