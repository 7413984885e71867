# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print lines on the controller's terminal as they are: `debug` would quote and wrap a table, each format its own way."""

from __future__ import annotations

import typing as t

from ansible import constants
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.dgxspark.cluster.plugins.modules.show import ARGUMENTS

display = Display()

# Of these callbacks a program reads the standard output: it has the lines in the result, and people on standard error.
FOR_PROGRAMS = frozenset({"json", "jsonl"})


class ActionModule(ActionBase):
    """Check the arguments, print."""

    _supports_check_mode = True
    _supports_diff = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Print; nothing is changed."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        checked, _arguments = self.validate_argument_spec(ARGUMENTS)
        lines = checked.validated_parameters["lines"]
        answer = {**result, "changed": False, "count": len(lines)}
        if str(constants.DEFAULT_STDOUT_CALLBACK).rpartition(".")[2] in FOR_PROGRAMS:
            display.display("\n".join(lines), stderr=True)
            return {**answer, "lines": lines}
        display.display("\n".join(lines))
        return answer
