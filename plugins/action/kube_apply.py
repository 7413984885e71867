# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Server-side apply of many objects in one step, with a check mode that also works before any of them exist."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.kube_apply import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import apply, ask, beside, group


class ActionModule(ControllerAction):
    """Apply the objects, report each."""

    arguments = ARGUMENTS
    _supports_diff = True
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return what changed, object by object."""
        if not args["objects"]:
            return {"objects": []}
        more = ask.where(args)
        if args["wait_for"]:
            condition = {"type": args["wait_for"], "status": "True"}
            more |= {"wait": True, "wait_timeout": 60, "wait_sleep": 1, "wait_condition": condition}
        objects, stays = beside.kept(
            args["objects"], ask.others(self, args["objects"], ask.where(args), self.task_vars)
        )
        if not objects:
            return {"objects": stays}
        said = group.put(self, objects, more, self.task_vars)
        if said.get("failed"):
            return said
        result = apply.outcome(objects, said, args["after"] if self._task.check_mode else [])
        return {**result, "objects": [*result["objects"], *stays]}
