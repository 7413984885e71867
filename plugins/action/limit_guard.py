# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the limit with the hosts that it selects, and judge the roles' variables, before any host is touched."""

from __future__ import annotations

from ansible.errors import AnsibleError

from ansible_collections.dgxspark.cluster.plugins.modules.limit_guard import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import role_arguments
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.inventory_limit import check_limit


class ActionModule(ControllerAction):
    """Judge the limit of this run."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the problems; failed if there are any."""
        reached, limit = self.variable("ansible_play_hosts_all"), self.variable("ansible_limit", "")
        found = check_limit(limit, self.variable("groups"), reached, args["targets"], args["also"])
        if not found:
            found = role_arguments.judge({host: self._given(host) for host in reached})
        problems = [str(finding) for finding in found]
        return {"problems": problems, **({"failed": True, "msg": " ".join(problems)} if problems else {})}

    def _given(self, host: str) -> Plain:
        """Return the owner's values of the roles' variables; what cannot be templated yet is left to its role."""
        hostvars, values = self.task_vars["hostvars"], {}
        for name in set(hostvars.raw_get(host)) & set(role_arguments.specs()):
            try:
                values[name] = hostvars[host][name]
            except AnsibleError:
                continue
        return values
