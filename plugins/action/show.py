# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print lines unchanged on the controller's terminal: `debug` quotes and wraps a table, differently in each output format."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.show import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.terminal import for_program, say


class ActionModule(ControllerAction):
    """Check the arguments, print."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Print; changes nothing."""
        lines = args["lines"]
        answer: Plain = {"count": len(lines)}
        say("\n".join(lines))
        return {**answer, "lines": lines} if for_program() else answer
