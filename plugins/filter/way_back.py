# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: way_back
short_description: Name the commands that lead back from an update of a node
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Returns, in their order, the restart into the kernel that ran before, apt's commands with the older versions and for what was not there
    before, and the end of a kernel's trial.
positional: trial, listed, hold
options:
  _input:
    description: What was done, as M(dgxspark.cluster.update_plan) returns it in RV(dgxspark.cluster.update_plan#module:turns).
    type: dict
    required: true
  trial:
    description: The kernel on trial, as M(dgxspark.cluster.boot_trial) returns it.
    type: dict
    required: true
  listed:
    description: The lines of C(dpkg-query) after the installation.
    type: list
    elements: str
    required: true
  hold:
    description: Whether packages are held, so that older ones are held again.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Show how to roll back
  ansible.builtin.debug:
    msg: "{{ turn | dgxspark.cluster.way_back(tried.trial, packages.stdout_lines, hold=false) }}"
"""

RETURN = r"""
_value:
  description: The commands, each with the node's name.
  type: list
  elements: str
"""

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.filters import as_filter


class FilterModule:
    def filters(self) -> dict[str, t.Any]:
        return {"way_back": as_filter("way_back", "update_back:way_back")}
