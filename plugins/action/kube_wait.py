# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Poll a group of ranks until it reaches the requested state, or until it is clear why it will not."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.kube_wait import ARGUMENTS, REQUIRED_IF
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import group


class ActionModule(ControllerAction):
    """Wait."""

    arguments = ARGUMENTS
    required_if = REQUIRED_IF
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return the group's state; failed with the cause if it is stuck or times out."""
        return group.wait(self, args, self.task_vars)
