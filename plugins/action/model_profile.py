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

    def act(self, args: Plain) -> Plain:
        """Return the profile, its text and the first plan."""
        source = read_model(
            args["model"], args["files"], args["revision"], args["hub_endpoint"], args["hub_token_file"]
        )
        wanted = ProfileRequest(args["profile_id"], args["profile_model"], args["engine"], args["nodes"])
        made = new_profile(source, wanted, args["cluster"], args["knowledge_dirs"])
        text = profile_text.sealed(profile_text.body(made.profile, made.decide), source.where)
        if args["path"] and not args["overwrite"]:
            profile_text.refuse_edited(pathlib.Path(args["path"]), text)
        decide = [{"key": key, "text": said} for key, said in made.decide]
        shown = serving_table(made.plan)
        return {"profile": made.profile, "text": text, "decide": decide, "plan": made.plan, "table": shown}
