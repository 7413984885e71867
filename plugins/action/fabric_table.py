# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Format the plan with its changes, host by host, and what a run ends with."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import read_in
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Node
from ansible_collections.dgxspark.cluster.plugins.modules.fabric_table import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.ended import ended
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.table import refusals, table


class ActionModule(ControllerAction):
    """Gather, format."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the table, and the changes and findings by host, and what site.yml would refuse."""
        changes: Plain = {}
        findings: Plain = {}
        for name in args["registers"]:
            for host, found in self.of_hosts(name, {}).items():
                if "changes" in found:
                    changes.setdefault(host, []).extend(found["changes"])
                    findings.setdefault(host, []).extend(found["findings"])
        told = (changes, findings) if args["registers"] else ()
        plan = self.variable("dgxspark_plan")
        return {
            "table": table(plan, *told),
            "changes": changes,
            "findings": findings,
            "refusals": refusals(findings),
            "ended": self._ended(plan, changes),
        }

    def _ended(self, plan: Plain, changes: Plain) -> list[str]:
        nodes = {
            host: read_in(Node, node, host) for host, node in self.of_hosts("dgxspark_roce").items() if node is not None
        }
        left = set(self.variable("ansible_play_hosts", []))
        lost = [host for host in self.variable("ansible_play_hosts_all", []) if host not in left]
        would = [host for host, found in changes.items() if found and self._task.check_mode]
        return ended(
            plan, nodes, lost, would, bool({"all", "verify"} & set(self.variable("ansible_run_tags", ["all"])))
        )
