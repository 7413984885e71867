# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build a role's files and units from a hardware class's figures, on the controller, which has the owner's folders."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.unit_plan import ARGUMENTS, PROGRAMS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import memory_guard, metrics, power
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain


class ActionModule(ControllerAction):
    """Gather, decide."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the files and units."""
        profile, dirs = args["profile"], self.owner_dirs()
        chosen = [name for name in PROGRAMS if args[name] is not None]
        if len(chosen) != 1:
            raise CollectionError(f"give one of {', '.join(PROGRAMS)}.")
        options = args[chosen[0]]
        if chosen == ["memory_guard"]:
            return memory_guard.plan(profile, options["overrides"], options["parts"], dirs)
        if chosen == ["power"]:
            return power.plan(profile, options["clock_mhz"], dirs)
        hosts, host = (self.variable("dgxspark_plan") or {}).get("hosts", {}), self.variable("inventory_hostname")
        if host not in hosts:
            raise CollectionError(f"{host} is not in the fabric's plan (dgxspark_plan). Plan the fabric first.")
        return metrics.plan(hosts[host], profile, **options, dirs=dirs)
