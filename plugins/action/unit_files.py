# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install or remove a program with its units; it is the first that teardown.yml does on a node, and so says what keeps it out."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.unit_files import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain


class ActionModule(ControllerAction):
    """Drive the module unit_files."""

    arguments = ARGUMENTS
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return the module's result."""
        answer: Plain = self._execute_module(
            module_name="dgxspark.cluster.unit_files", module_args=dict(self._task.args), task_vars=self.task_vars
        )
        return answer
