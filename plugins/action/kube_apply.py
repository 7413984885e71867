# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Server-side apply of many objects in one step, with a check mode that also works where nothing is there yet."""

from __future__ import annotations

import time

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.kube_apply import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import apply, ask
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import MANAGER

GONE_S = 60  # for objects that are being deleted


class ActionModule(ControllerAction):
    """Hand the objects on, report each."""

    arguments = ARGUMENTS
    _supports_diff = True
    _requires_connection = True

    def act(self, asked: Plain) -> Plain:
        """Return what changed, object by object."""
        if not asked["objects"]:
            return {"objects": []}
        arguments = {
            "resource_definition": asked["objects"],
            "apply": True,
            "server_side_apply": {"field_manager": MANAGER, "force_conflicts": True},
            # One that cannot be judged in check mode must not hide the others.
            "continue_on_error": self._task.check_mode,
            **ask.where(asked),
        }
        if asked["wait_for"]:
            condition = {"type": asked["wait_for"], "status": "True"}
            arguments |= {"wait": True, "wait_timeout": 60, "wait_sleep": 1, "wait_condition": condition}
        until = time.monotonic() + GONE_S
        while True:
            said = ask.k8s(self, arguments, self.task_vars)
            # The server takes what is applied to them, and deletes it with them a moment later.
            leaving = [] if self._task.check_mode else apply.leaving(asked["objects"], said)
            if said.get("failed") and not leaving:
                return said
            if not leaving:
                return apply.outcome(asked["objects"], said, asked["after"] if self._task.check_mode else [])
            if time.monotonic() > until:
                still = f"{', '.join(leaving)}: being deleted, and still there after {GONE_S} s. See its finalizers."
                raise CollectionError(still)
            time.sleep(2)
