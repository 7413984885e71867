# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print lines on the controller's terminal as they are: `debug` would quote and wrap a table, each format its own way."""

from __future__ import annotations

from ansible import constants
from ansible.utils.display import Display

from ansible_collections.dgxspark.cluster.plugins.modules.show import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain

display = Display()

# Of these callbacks a program reads the standard output: it has the lines in the result, and people on standard error.
FOR_PROGRAMS = frozenset({"json", "jsonl"})


class ActionModule(ControllerAction):
    """Check the arguments, print."""

    arguments = ARGUMENTS

    def act(self, asked: Plain) -> Plain:
        """Print; nothing is changed."""
        lines = asked["lines"]
        answer: Plain = {"count": len(lines)}
        if str(constants.DEFAULT_STDOUT_CALLBACK).rpartition(".")[2] in FOR_PROGRAMS:
            display.display("\n".join(lines), stderr=True)
            return {**answer, "lines": lines}
        display.display("\n".join(lines))
        return answer
