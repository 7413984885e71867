# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure a matrix from the controller. Ctrl-C: Ansible says it is interrupted, and waits for the case at work to end."""

from __future__ import annotations

import sys
import typing as t

from ansible import context
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.matrix import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import report, session, steps

display = Display()
# What is asked at the terminal cannot be asked again for each step.
_ASKED = {
    "become_ask_pass": "--become-password-file",
    "ask_pass": "--connection-password-file",
    "ask_vault_pass": "--vault-password-file",
}


class ActionModule(ActionBase):
    """Check the arguments, measure, report."""

    _supports_check_mode = True
    _supports_diff = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return what was measured; failed where a node was lost, or what served before does not serve."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        checked, _arguments = self.validate_argument_spec(ARGUMENTS)
        given = {k: tuple(v) if isinstance(v, list) else v for k, v in checked.validated_parameters.items()}
        wishes = session.Wishes(**given)
        result["changed"] = False
        try:
            if self._task.check_mode:
                matrix, found = session.planned(wishes)
                return {**result, "table": report.plan_table(matrix.id, found)}
            made = session.measure(wishes, _options(), display.display)
        except CollectionError as exc:
            return {**result, "failed": True, "msg": f"dgxspark.cluster.matrix: {exc}"}
        failed = made["ended"] == "lost" or made.get("restored") is False
        return {**result, **made, "changed": made["measured"] > 0, "failed": failed, "msg": made["message"]}


def _options() -> list[str]:
    """Return what ansible-playbook was told. CollectionError for what its steps could not be told, too."""
    for option, instead in _ASKED.items():
        if context.CLIARGS.get(option):
            raise CollectionError(
                f"a password is asked for at the terminal, but each step would need it: use {instead}."
            )
    if tuple(context.CLIARGS.get("tags") or ("all",)) != ("all",) or context.CLIARGS.get("skip_tags"):
        raise CollectionError("tags would leave out parts of the steps: run it without --tags and --skip-tags.")
    return steps.options_of(sys.argv, context.CLIARGS.get("args") or ())
