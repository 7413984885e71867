# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmark a served model from the controller, which has the workloads and the guards' limits."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.bench import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import known, report
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.run import run
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.wanted import BenchRequest
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.terminal import say


class ActionModule(ControllerAction):
    """Measure, report."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the report; failed if a level is failed or garbage. Check mode sends no requests."""
        folders = args.pop("knowledge_dirs")
        given: Plain = {name: tuple(value) if isinstance(value, list) else value for name, value in args.items()}
        if self._task.check_mode:
            return {"skipped": True, "msg": "Check mode sends no requests."}
        return report.result(run(BenchRequest(**given), known.load(folders), say))
