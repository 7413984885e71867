# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create a node's VFs in turn with other runs."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.sriov_vf import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric import turns
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.terminal import say


class ActionModule(ControllerAction):
    """Drive the module sriov_vf."""

    arguments = ARGUMENTS
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return the module's result, once no other run is at work on the node."""
        host = self.variable("inventory_hostname")
        return turns.in_turn(self._module, lambda text: say(f"{host}: {text}"))

    def _module(self, waited: Plain | None) -> Plain:
        arguments = {**self._task.args, "run": turns.this_run(), **({"waited": waited["who"]} if waited else {})}
        answer: Plain = self._execute_module(
            module_name="dgxspark.cluster.sriov_vf", module_args=arguments, task_vars=self.task_vars
        )
        return answer
