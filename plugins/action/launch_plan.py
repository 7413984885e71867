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

    def act(self, asked: Plain) -> Plain:
        """Return the plan; failed if it is blocked, unless fail_when_blocked is off."""
        overlays, overrides = asked["knowledge_dirs"], dict(asked["overrides"])
        result: Plain = {}
        if asked["traffic_shape"]:
            result["recommendation"] = recommend(asked["profile"], asked["traffic_shape"], overlays)
            if result["recommendation"]["variant"] != "default":
                overrides.setdefault("variant", result["recommendation"]["variant"])
        files = self._files(asked, overlays)
        made = launch_plan(asked["profile"], asked["cluster"], overrides, overlays, files=files)
        result |= {"plan": made, "table": serving_table(made, result.get("recommendation"))}
        errors = [f"{f['message']} {f['remedy']}" for f in made["findings"] if f["severity"] == "error"]
        if made["verdict"] == "blocked" and asked["fail_when_blocked"]:
            return {**result, "failed": True, "msg": f"{made['profile']}: blocked. " + " ".join(errors)}
        return result

    def _files(self, asked: Plain, overlays: list[str]) -> Plain | None:
        """Return the model's own files, if any are named or found."""
        if asked["model_config"] != AUTO:
            return given_model_files(asked["model_config"], asked["model_files"])
        hub = Hub(asked["hub_endpoint"], asked["hub_token_file"], asked["hub_token"], asked["hub_environment"])
        places = Places(asked["model_files"] or {}, asked["model_files_unread"], hub)
        return find_model_files(find_profile(asked["profile"], overlays), places, overlays)
