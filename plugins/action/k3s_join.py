# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a K3s cluster that the inventory does not manage whether nodes can join it; take out a node that had."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import to_plain
from ansible_collections.dgxspark.cluster.plugins.modules.k3s_join import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s import joined
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask


class ActionModule(ControllerAction):
    """Ask the server, then the API."""

    arguments = ARGUMENTS
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return what the cluster says of itself, never the token; or what became of the node that leaves."""
        if args["leaves"]:
            node = {"api_version": "v1", "kind": "Node", "name": args["leaves"], "state": "absent"}
            return ask.k8s(self, node | ask.where(args), self.task_vars)
        token = joined.read_token(args["token_file"]) if args["token_file"] else None
        seen = joined.ask(args["url"], token)
        nodes, ranks = (
            ask.objects(self, ("v1", kind), ask.where(args), labels, self.task_vars)
            for kind, labels in (("Node", ()), ("Pod", joined.RANKS))
        )
        return {"cluster": to_plain(joined.with_nodes(seen, nodes, ranks))}
