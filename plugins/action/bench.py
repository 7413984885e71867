# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure a served model from the controller: there the workloads and the guards' limits lie."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.bench import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import report
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.run import Wanted, run

display = Display()


class ActionModule(ActionBase):
    """Check the arguments, measure, report."""

    _supports_check_mode = True
    _supports_diff = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the report; failed where a level is failed or garbage. Check mode asks nothing."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        checked, _arguments = self.validate_argument_spec(ARGUMENTS)
        given = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in checked.validated_parameters.items()
        }
        result |= {"changed": False}
        if self._task.check_mode:
            return {**result, "skipped": True, "msg": "Check mode asks the server nothing."}
        try:
            made = run(Wanted(**given), display.display)
        except CollectionError as exc:
            return {**result, "failed": True, "msg": f"dgxspark.cluster.bench: {exc}"}
        result |= {"bench": made, "table": report.table(made)}
        result["problem"] = " ".join(report.problems(made))
        return {**result, "failed": True, "msg": result["problem"]} if result["problem"] else result
