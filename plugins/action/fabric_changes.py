# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare a host with its part of the plan, on the controller."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import read_in
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, Node, to_plain
from ansible_collections.dgxspark.cluster.plugins.modules.fabric_changes import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric import changes, netplan_file


class ActionModule(ControllerAction):
    """Compare."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the differences, the reasons not to apply them, and netplan's file."""
        host, plan, node = (self.variable(name) for name in ("inventory_hostname", "dgxspark_plan", "dgxspark_roce"))
        if not plan or not node or host not in plan["hosts"]:
            raise CollectionError(f"{host} has not been read (dgxspark_roce) or planned (dgxspark_plan) yet.")
        planned, parts = plan["hosts"][host], args["parts"]
        options = {key: args[key] for key in ("trust", "spoof_check", "reset_stranded")}
        where = (args["path"], args["foreign_stanzas"])
        found: Plain = to_plain(changes.changes(planned, node, options, parts, *where))
        if "netplan" in parts:
            there = read_in(Node, node, host).netplan
            found["netplan"] = to_plain(netplan_file.file_of(planned, there, args["path"]))
        return found
