# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the controller's Python packages and the names of the owner's variables, before anything else runs."""

from __future__ import annotations

from ansible import context
from ansible.utils.vars import load_extra_vars

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.preflight import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import packages, variable_names
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.inventory_limit import all_hosts

_SHOWN = 10


class ActionModule(ControllerAction):
    """Look, refuse."""

    arguments = ARGUMENTS

    def act(self, asked: Plain) -> Plain:
        """Return the warnings; CollectionError for missing packages or unknown variables."""
        if lacking := packages.problem():
            raise CollectionError(lacking)
        found = variable_names.check(self._given())
        errors = [str(each) for each in found if each.severity == "error"]
        if errors:
            more = [f"And {len(errors) - _SHOWN} more."] if len(errors) > _SHOWN else []
            raise CollectionError(" ".join([*errors[:_SHOWN], *more]))
        if not self.variable("guard_no_node", False):
            all_hosts(self.variable("groups", {}), sources=context.CLIARGS.get("inventory") or ())
        return {"warnings": [str(each) for each in found]} if found else {}

    def _given(self) -> dict[str, str]:
        """Return where each variable is set."""
        given: dict[str, str] = {}
        hostvars = self.task_vars["hostvars"]
        for host in self.variable("groups", {}).get("all", []):
            for name in hostvars.raw_get(host):
                if variable_names.ours(name):
                    given.setdefault(name, f"inventory, host {host}")
        return given | {str(name): "-e" for name in load_extra_vars(self._loader)}
