# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a profile of a model's own files on the controller: knowledge lies there, and so does the owner's file."""

from __future__ import annotations

import pathlib
import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.model_profile import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import model_source, profile_text
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.new_profile import Wanted, new_profile


class ActionModule(ActionBase):
    """Check the arguments, read, decide, report."""

    _supports_check_mode = True
    _supports_diff = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the profile, its text and the first plan; nothing is written."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        checked, _arguments = self.validate_argument_spec(ARGUMENTS)
        asked = checked.validated_parameters
        result["changed"] = False
        try:
            source = model_source.read(
                asked["model"], asked["files"], asked["revision"], asked["hub_endpoint"], asked["hub_token_file"]
            )
            wanted = Wanted(asked["profile_id"], asked["profile_model"], asked["engine"], asked["nodes"])
            made = new_profile(source, wanted, asked["cluster"], asked["knowledge_dirs"])
            text = profile_text.sealed(profile_text.body(made.profile, made.decide), source.where)
            if asked["path"] and not asked["overwrite"]:
                profile_text.refuse_edited(pathlib.Path(asked["path"]), text)
        except CollectionError as exc:
            return {**result, "failed": True, "msg": f"dgxspark.cluster.model_profile: {exc}"}
        decide = [{"key": key, "text": said} for key, said in made.decide]
        return {**result, "profile": made.profile, "text": text, "decide": decide, "plan": made.plan}
