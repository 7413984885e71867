# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask the API what all instances hold, and the planner what else fits."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import to_plain
from ansible_collections.dgxspark.cluster.plugins.modules.kube_models import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import hardware
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import models_page
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, models, models_text
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.instances import KINDS, SELECTORS, instances

MIB_PER_GIB = 1024


class ActionModule(ControllerAction):
    """Ask, judge."""

    arguments = ARGUMENTS
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return the picture as data, lines and page; failed if the API does not answer."""
        place = ask.where(args)
        found = {kind[1]: ask.objects(self, kind, place, SELECTORS, self.task_vars) for kind in KINDS}
        guard = hardware.guard_if_any(args["hardware"], args["knowledge_dirs"])
        made = models.picture(
            args["cluster"],
            instances(found, args["node_names"]),
            ask.objects(self, ("v1", "Node"), place, (), self.task_vars),
            node_names=args["node_names"],
            floor_gib=guard["load"]["floor_mib"] / MIB_PER_GIB if guard else None,
            shape=args["traffic_shape"],
            without=args["without"],
            knowledge_dirs=args["knowledge_dirs"],
        )
        return {"models": to_plain(made), "table": models_text.lines(made), "page": models_page.page(made)}
