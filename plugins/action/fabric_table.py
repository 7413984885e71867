# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Format the plan with its changes, host by host."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.fabric_table import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.table import refusals, table


class ActionModule(ControllerAction):
    """Gather, format."""

    arguments = ARGUMENTS

    def act(self, asked: Plain) -> Plain:
        """Return the table, and the changes and findings by host, and what site.yml would refuse."""
        changes: Plain = {}
        findings: Plain = {}
        for name in asked["registers"]:
            for host, found in self.of_hosts(name, {}).items():
                if "changes" in found:
                    changes.setdefault(host, []).extend(found["changes"])
                    findings.setdefault(host, []).extend(found["findings"])
        told = (changes, findings) if asked["registers"] else ()
        shown = table(self.variable("dgxspark_plan"), *told)
        return {"table": shown, "changes": changes, "findings": findings, "refusals": refusals(findings)}
