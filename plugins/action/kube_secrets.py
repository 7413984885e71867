# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Apply the Secrets that an instance's ranks read, or remove its others. Neither results nor diffs contain their data."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.kube_secrets import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import apply, ask, group, secrets


class ActionModule(ControllerAction):
    """Build them, apply them, name them."""

    arguments = ARGUMENTS
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return whether anything changed and, if applied, a line for each Secret."""
        # Set here, so that no task must remember it: a module in a process of its own would log its arguments.
        self._task.no_log, self._task.diff = True, False
        read = secrets.secrets(args["namespace"], args["instance"], args["hf_token"], args["api_key"])
        if args["state"] == "pruned":
            unread = {"label_selectors": secrets.others(args["instance"], read), "api_version": "v1", "kind": "Secret"}
            gone = {**ask.where(args), **unread, "state": "absent", "delete_all": True}
            return {"changed": ask.done(self, gone, self.task_vars)["changed"]}
        if not read:
            return {"objects": []}
        said = ask.good(group.put(self, read, ask.where(args), self.task_vars))
        made = apply.outcome(read, said, args["after"] if self._task.check_mode else [])
        return {"changed": made["changed"], "objects": made["objects"]}
