# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Join a benchmark's levels with the readings of the nodes' power."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.bench_energy import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import energy, report
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain


class ActionModule(ControllerAction):
    """Join, report."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the report with each level's energy. A level that is not good fails no task here: that one measured has said it."""
        once, whole = (self.of_hosts(args[key], {}) for key in ("once", "whole"))
        nodes = {host: energy.readings(once.get(host) or {}, whole.get(host) or {}) for host in args["hosts"]}
        clock = energy.readings(once.get(args["clock"]) or {}, {}) if args["clock"] else None
        found = report.result(energy.joined(args["bench"], nodes, clock))
        return {name: found[name] for name in ("bench", "table", "problem")}
