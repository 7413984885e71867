# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the inventory's fabric as its nodes are, or without them where they contradict it."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.fabric_plan import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.inventory import plan_as_seen
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.settings import group_name


class ActionModule(ControllerAction):
    """Gather, plan."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the plan, and why the nodes contradict the inventory if they do."""
        settings = self.variable("dgxspark_fabric", {})
        hosts = self.variable("groups").get(group_name(settings), [])
        plan, fault = plan_as_seen(hosts, settings, self.task_vars["hostvars"], self.owner_dirs())
        return {"plan": plan, "fault": fault}
