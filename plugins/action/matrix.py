# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure a matrix from the controller. On Ctrl-C, Ansible reports the interruption and waits for the current case to finish."""

from __future__ import annotations

import json

from ansible_collections.dgxspark.cluster.plugins.modules.matrix import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.children import options
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import matrix_page
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import report, session
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.terminal import say


class ActionModule(ControllerAction):
    """Check the arguments, measure, report."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the measurements; failed if a node was lost, or what was served before is not served again."""
        # Ansible's strings carry their origin, and YAML's dumper does not accept them.
        plain = json.loads(json.dumps(args))
        given: Plain = {name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()}
        request = session.MatrixRequest(**given)
        if self._task.check_mode:
            matrix, found = session.planned(request)
            return {"table": report.plan_table(matrix.id, found)}
        made = session.measure(request, options(), say, matrix_page.page)
        failed = made["ended"] == "lost" or made.get("restored") is False
        return {**made, "changed": made["measured"] > 0, "failed": failed, "msg": made["message"]}
