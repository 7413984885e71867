# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan K3s for the host from the role's variables and the inventory."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.k3s_plan import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s import config, plan


class ActionModule(ControllerAction):
    """Gather, plan."""

    arguments = ARGUMENTS
    reported = ("machine", "server", "archives", "joined")

    def act(self, args: Plain) -> Plain:
        """Return the plan; failed if something prevents it."""
        groups, fabric = self.variable("groups"), self.variable("dgxspark_fabric", {})
        given = {
            "settings": config.settings_of(self.variable),
            "servers": groups.get(self.variable("k3s_server_group"), []),
            "agents": groups.get(self.variable("k3s_agent_group"), []),
            "fabric": fabric,
            "sparks": groups.get(fabric.get("group", "dgx"), []),
            "machine": args["machine"],
            "server": args["server"],
            "joined": args["joined"],
            "archives_seen": [result.get("stat") for result in args["archives"]],
        }
        name, hostvars = self.variable("inventory_hostname"), self.task_vars["hostvars"]
        made = plan.plan_of_inventory(name, given, hostvars, self.owner_dirs())
        if refusals := made.pop("refusals", []):
            return {"failed": True, "msg": " ".join(refusals), "findings": made["findings"]}
        return made
