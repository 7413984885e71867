# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan a model's launch on the controller, which has profiles and knowledge; sends nothing to a node."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.launch_plan import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import (
    AUTO,
    Hub,
    Places,
    find_model_files,
    find_profile,
    given_model_files,
    recommend,
    serving_table,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan


class ActionModule(ControllerAction):
    """Plan, report."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the plan; failed if it is blocked, unless fail_when_blocked is off."""
        overlays, overrides = args["knowledge_dirs"], dict(args["overrides"])
        result: Plain = {}
        if args["traffic_shape"]:
            result["recommendation"] = recommend(args["profile"], args["traffic_shape"], overlays)
            if result["recommendation"]["variant"] != "default":
                overrides.setdefault("variant", result["recommendation"]["variant"])
        files = self._files(args, overlays)
        made = launch_plan(args["profile"], args["cluster"], overrides, overlays, files=files)
        result |= {"plan": made, "table": serving_table(made, result.get("recommendation"))}
        errors = [f"{f['message']} {f['remedy']}" for f in made["findings"] if f["severity"] == "error"]
        if made["verdict"] == "blocked" and args["fail_when_blocked"]:
            return {**result, "failed": True, "msg": f"{made['profile']}: blocked. " + " ".join(errors)}
        return result

    def _files(self, args: Plain, overlays: list[str]) -> Plain | None:
        """Return the model's own files, if any are named or found."""
        if args["model_config"] != AUTO:
            return given_model_files(args["model_config"], args["model_files"])
        hub = Hub(args["hub_endpoint"], args["hub_token_file"], args["hub_token"], args["hub_environment"])
        places = Places(args["model_files"] or {}, args["model_files_unread"], hub)
        return find_model_files(find_profile(args["profile"], overlays), places, overlays)
