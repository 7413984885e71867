# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the inventory on the controller, where it is written and where this run's connection options are known."""

from __future__ import annotations

import typing as t

from ansible import constants, context

from ansible_collections.dgxspark.cluster.plugins.modules.discover import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.discover.discovery import discover, lay_down
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.discover.seen import CONNECTION


class ActionModule(ControllerAction):
    """Check the arguments, compose, write, report."""

    arguments = ARGUMENTS
    reported = ("hosts",)
    _supports_diff = True

    def act(self, args: Plain) -> Plain:
        """Return `ok`, and the lines to show; the caller fails if it is not ok."""
        hostvars: t.Any = self.task_vars.get("hostvars") or {}
        hosts = {name: {**seen, "reach": _reach(hostvars, name)} for name, seen in args["hosts"].items()}
        made = discover(hosts, args["keep_names"], args["knowledge_dirs"])
        return lay_down(made, args["path"], args["overwrite"], self._task.check_mode, config=not constants.CONFIG_FILE)


def _reach(hostvars: t.Any, name: str) -> dict[str, t.Any]:
    """Return how to reach a host: its variables, and options from the command line."""
    variables = hostvars[name] if name in hostvars else {}  # noqa: SIM401 - hostvars has no default
    reach = {key: variables[key] for key in CONNECTION if variables.get(key) is not None}
    if reach.get("ansible_connection") != "local":
        for key, option in (("ansible_user", "remote_user"), ("ansible_ssh_private_key_file", "private_key_file")):
            if context.CLIARGS.get(option):
                reach.setdefault(key, context.CLIARGS[option])
        reach.setdefault("ansible_become", reach.get("ansible_user") != "root")
    return {key: value if isinstance(value, bool) else str(value) for key, value in reach.items()}
