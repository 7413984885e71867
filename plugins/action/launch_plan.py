# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan a model's launch on the controller: profiles and knowledge lie there, and nothing is sent to a node."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.launch_plan import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import model_files, plan


class ActionModule(ActionBase):
    """Check the arguments, plan, report."""

    _supports_check_mode = True
    _supports_diff = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the plan; failed where it is blocked, unless that is not wanted."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        checked, _arguments = self.validate_argument_spec(ARGUMENTS)
        asked = checked.validated_parameters
        overlays = asked["knowledge_dirs"]
        overrides = dict(asked["overrides"])
        result["changed"] = False
        try:
            if asked["traffic_shape"]:
                result["recommendation"] = plan.recommend(asked["profile"], asked["traffic_shape"], overlays)
                if result["recommendation"]["variant"] != "default":
                    overrides.setdefault("variant", result["recommendation"]["variant"])
            files = model_files.given(asked["model_config"], asked["model_files"])
            made = plan.launch_plan(asked["profile"], asked["cluster"], overrides, overlays, files=files)
        except CollectionError as exc:
            return {**result, "failed": True, "msg": f"dgxspark.cluster.launch_plan: {exc}"}
        result["plan"] = made
        errors = [f"{f['message']} {f['remedy']}" for f in made["findings"] if f["severity"] == "error"]
        if made["verdict"] == "blocked" and asked["fail_when_blocked"]:
            return {**result, "failed": True, "msg": f"{made['profile']}: blocked. " + " ".join(errors)}
        return result
