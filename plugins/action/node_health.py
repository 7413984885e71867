# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a node's state: that sudo wants a password is a failed result as any other, and ends no playbook that looks at many nodes."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.node_health import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain


class ActionModule(ControllerAction):
    """Drive the module node_health."""

    arguments = ARGUMENTS
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return the module's result."""
        answer: Plain = self._execute_module(
            module_name="dgxspark.cluster.node_health", module_args=self._task.args, task_vars=self.task_vars
        )
        return answer
