# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the host's NCCL environment from the fabric plan, the host's facts and the role's variables."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.nccl_environment import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import options
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.environment import nccl_environment


class ActionModule(ControllerAction):
    """Gather, decide."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the environment, or in check mode that the VFs have not been seen yet."""
        host, hosts = self.variable("inventory_hostname"), (self.variable("dgxspark_plan") or {}).get("hosts", {})
        if host not in hosts:
            raise CollectionError(f"{host} is not in the fabric's plan (dgxspark_plan). Plan the fabric first.")
        if self._task.check_mode and not options.seen(hosts[host]):
            return {"seen": False}
        chosen = options.options_of(self.variable, args["attachment"], args["gids"])
        made = nccl_environment(hosts, None, chosen, "any", self.variable("nccl_version"), self.owner_dirs(), [host])
        return {"seen": True, "environment": {**made[host], **self.variable("nccl_extra_environment", {})}}
