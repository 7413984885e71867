# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read an instance's objects and save them."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.kube_kept import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, rollout


class ActionModule(ControllerAction):
    """Ask, save."""

    arguments = ARGUMENTS
    _requires_connection = True

    def act(self, asked: Plain) -> Plain:
        """Return the instance in a form that can be served again."""
        kinds = [(kind["api_version"], kind["kind"]) for kind in asked["kinds"]]
        there = ask.of_instance(self, asked, kinds, self.task_vars)
        return {"kept": rollout.kept(there, asked["instance"])}
