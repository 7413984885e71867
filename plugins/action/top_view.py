# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask the cluster and its engines how busy they are, and show that beside what the nodes have reported."""

from __future__ import annotations

import json
import time

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.top_view import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import hardware, live, terminal, top
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.answer import reason
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import known
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.settings import hardware_name
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, busy


class ActionModule(ControllerAction):
    """Ask, compare, show."""

    arguments = ARGUMENTS
    reported = ("before",)
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return the reading, for the next one to compare with, and the view."""
        now: Plain = {"at": time.time(), "nodes": self._nodes(args), "groups": [], "why": ""}
        try:
            now["groups"] = self._groups(args)
        except CollectionError as exc:
            now["why"] = f"Groups are not seen: {exc}"
        view = top.view(now, args["before"] or None)
        clock = time.strftime("%H:%M:%S", time.localtime(now["at"]))
        lines = top.table(view, clock)
        wanted = bool(terminal.TERMINAL) and args["show"] == "table"
        lacking = live.lacks() if wanted else ""
        tty = terminal.TERMINAL if wanted and not lacking else ""
        screen = live.Screen(args["screen"])
        ended = screen.draw(tty, top.page(view, clock, self._limits()), args["pause"]) if args["more"] else True
        if ended:
            broken, once = screen.end(), f"This is shown once, not live. {lacking}"
            notes = [f"The live view broke down: {broken}"] * bool(broken) + [once] * bool(lacking)
            terminal.say("\n".join([*notes, *([json.dumps(view)] if args["show"] == "json" else lines)]))
        return {"reading": now, "view": view, "table": lines, "screen": screen.folder, "ended": ended}

    def _limits(self) -> Plain:
        return hardware.health(hardware_name(self.variable("dgxspark_fabric", {})), self.owner_dirs())

    def _nodes(self, args: Plain) -> Plain:
        found, counted = self.of_hosts(args["health"]), self.of_hosts(args["counters"])
        return {host: _node(said or {}, counted[host] or {}) for host, said in found.items()}

    def _groups(self, args: Plain) -> list[Plain]:
        kinds = {
            kind: ask.objects(self, (api, kind), ask.where(args), busy.SELECTORS, self.task_vars)
            for api, kind in busy.KINDS
        }
        entries = known.engines(args["knowledge_dirs"])
        return [
            top.group(each.name, each.hosts, busy.scrape(each, entries))
            for each in busy.groups(kinds, args["node_names"])
        ]


def _node(said: Plain, counted: Plain) -> Plain:
    if "health" not in said:
        return top.node({}, (), " ".join(reason(said).split()) if said else "it was not read")
    return top.node(said["health"], counted.get("counters") or ())
