# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a profile from a model's own files, on the controller, which has the knowledge and the owner's file."""

from __future__ import annotations

import pathlib

from ansible_collections.dgxspark.cluster.plugins.modules.model_profile import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import (
    ProfileRequest,
    profile_text,
    read_model,
    serving_table,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import new_profile


class ActionModule(ControllerAction):
    """Read, decide, report."""

    arguments = ARGUMENTS

    def act(self, asked: Plain) -> Plain:
        """Return the profile, its text and the first plan."""
        source = read_model(
            asked["model"], asked["files"], asked["revision"], asked["hub_endpoint"], asked["hub_token_file"]
        )
        wanted = ProfileRequest(asked["profile_id"], asked["profile_model"], asked["engine"], asked["nodes"])
        made = new_profile(source, wanted, asked["cluster"], asked["knowledge_dirs"])
        text = profile_text.sealed(profile_text.body(made.profile, made.decide), source.where)
        if asked["path"] and not asked["overwrite"]:
            profile_text.refuse_edited(pathlib.Path(asked["path"]), text)
        decide = [{"key": key, "text": said} for key, said in made.decide]
        shown = serving_table(made.plan)
        return {"profile": made.profile, "text": text, "decide": decide, "plan": made.plan, "table": shown}
