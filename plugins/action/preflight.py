# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the controller's Python packages and the owner's variables, before anything else runs."""

from __future__ import annotations

from ansible import context
from ansible.utils.vars import load_extra_vars

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, Finding
from ansible_collections.dgxspark.cluster.plugins.modules.preflight import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import (
    command_line,
    packages,
    role_arguments,
    run_values,
    variable_names,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.inventory_limit import all_hosts
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify import modes

_SHOWN = 10


class ActionModule(ControllerAction):
    """Look, refuse."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the warnings; CollectionError for missing packages, and for variables that are unknown or cannot be so."""
        if lacking := packages.problem():
            raise CollectionError(lacking)
        extra = load_extra_vars(self._loader)
        groups = self.variable("groups", {})
        found = [
            *command_line.stray(extra),
            *command_line.tags(context.CLIARGS.get("args") or (), self._tags()),
            *variable_names.check({**self._given(), **dict.fromkeys(map(str, extra), "-e")}),
            *variable_names.short(extra, alone=not groups.get("all")),
            *role_arguments.texts_for_mappings(extra),
            *self._values(),
        ]
        errors = [str(each) for each in found if each.severity == "error"]
        if errors:
            more = [f"And {len(errors) - _SHOWN} more."] if len(errors) > _SHOWN else []
            raise CollectionError(" ".join([*errors[:_SHOWN], *more]))
        if not self.variable("guard_no_node", False):
            # The condition as the playbook wrote it says what it takes in place of hosts.
            unless, anywhere = self.task_vars.get("guard_no_node", ""), self.variable("guard_any_host", False)
            all_hosts(groups, sources=context.CLIARGS.get("inventory") or (), addresses=anywhere, unless=str(unless))
        return {"warnings": [str(each) for each in found]} if found else {}

    def _values(self) -> list[Finding]:
        """Return what is wrong with the playbooks' own variables, wherever they are set."""
        given = {name: self.variable(name) for name in run_values.NAMES if name in self.task_vars}
        return run_values.judge(given, modes.names(self.owner_dirs()) if run_values.VERIFY_MODE in given else ())

    def _given(self) -> dict[str, str]:
        """Return where the inventory sets each variable."""
        given: dict[str, str] = {}
        hostvars = self.task_vars["hostvars"]
        for host in self.variable("groups", {}).get("all", []):
            for name in hostvars.raw_get(host):
                if variable_names.ours(name):
                    given.setdefault(name, f"inventory, host {host}")
        return given

    @staticmethod
    def _tags() -> dict[str, str]:
        """Return the tags of the command line, and the option that names each."""
        options = {"skip_tags": "--skip-tags", "tags": "--tags"}
        return {
            tag: option
            for key, option in options.items()
            for each in context.CLIARGS.get(key) or ()
            for tag in each.split(",")
        }
