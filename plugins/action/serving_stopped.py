# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Say what was stopped, and what stays."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.serving_stopped import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import request
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.terminal import say


class ActionModule(ControllerAction):
    """Format, print."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Print; changes nothing."""
        told = request.stopped(
            args["objects"],
            args["instance"],
            args["namespace"],
            args["node_names"],
            args["weights"],
            dry=self._task.check_mode,
        )
        say("\n".join(told))
        return {"lines": told}
