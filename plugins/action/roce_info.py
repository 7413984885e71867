# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a node, and claim it for this run if that is going to change it."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.roce_info import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric import turns


class ActionModule(ControllerAction):
    """Drive the module roce_info."""

    arguments = ARGUMENTS
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return the module's result."""
        arguments = {**self._task.args, **({"run": turns.this_run()} if args["claim"] else {})}
        answer: Plain = self._execute_module(
            module_name="dgxspark.cluster.roce_info", module_args=arguments, task_vars=self.task_vars
        )
        return answer
