# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the power of a node's GPU, and compare the node's clock with the controller's."""

from __future__ import annotations

import time

from ansible_collections.dgxspark.cluster.plugins.modules.power_samples import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain


class ActionModule(ControllerAction):
    """Drive the module power_samples."""

    arguments = ARGUMENTS
    _requires_connection = True
    _supports_async = True

    def act(self, args: Plain) -> Plain:
        """Return the module's result, and for a single reading the difference of the clocks."""
        began = time.time()
        answer: Plain = self._execute_module(
            module_name="dgxspark.cluster.power_samples",
            module_args=self._task.args,
            task_vars=self.task_vars,
            wrap_async=self._task.async_val,
        )
        if args["path"] or not answer.get("samples"):
            return answer
        return {**answer, "offset_s": float(answer["samples"][0][0]) - (began + time.time()) / 2}
