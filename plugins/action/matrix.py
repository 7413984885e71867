# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure a matrix from the controller. On Ctrl-C, Ansible reports the interruption and waits for the current case to finish."""

from __future__ import annotations

import json
import sys

from ansible import context

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.matrix import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import report, session, steps
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.terminal import say

# Prompts at the terminal cannot be repeated for each step.
_ASKED = {
    "become_ask_pass": "--become-password-file",
    "ask_pass": "--connection-password-file",
    "ask_vault_pass": "--vault-password-file",
}


class ActionModule(ControllerAction):
    """Check the arguments, measure, report."""

    arguments = ARGUMENTS

    def act(self, asked: Plain) -> Plain:
        """Return the measurements; failed if a node was lost, or what was served before is not served again."""
        # Ansible's strings carry their origin, and YAML's dumper does not accept them.
        plain = json.loads(json.dumps(asked))
        given: Plain = {name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()}
        request = session.MatrixRequest(**given)
        if self._task.check_mode:
            matrix, found = session.planned(request)
            return {"table": report.plan_table(matrix.id, found)}
        made = session.measure(request, _options(), say)
        failed = made["ended"] == "lost" or made.get("restored") is False
        return {**made, "changed": made["measured"] > 0, "failed": failed, "msg": made["message"]}


def _options() -> list[str]:
    """Return ansible-playbook's options. CollectionError for options that cannot be passed on to the steps."""
    for option, instead in _ASKED.items():
        if context.CLIARGS.get(option):
            raise CollectionError(
                f"a password is asked for at the terminal, but each step would need it: use {instead}."
            )
    if tuple(context.CLIARGS.get("tags") or ("all",)) != ("all",) or context.CLIARGS.get("skip_tags"):
        raise CollectionError("tags would leave out parts of the steps: run it without --tags and --skip-tags.")
    return steps.options_of(sys.argv, context.CLIARGS.get("args") or ())
