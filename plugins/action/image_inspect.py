# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have a pod read an engine's image on one node, remove the pod, and turn its output into knowledge."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.image_inspect import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import inspect
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.run_once import Job, Runner
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import (
    image_entries,
    image_summary,
    read_image_report,
)


class ActionModule(ControllerAction):
    """Create the pod, wait, read, decide."""

    arguments = ARGUMENTS
    initial = {"read": False, "files": []}  # noqa: RUF012 - never changed
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return the entries as files; writes nothing."""
        overlays, timeout_s = args["knowledge_dirs"], args["timeout"]
        try:
            needs, pod = inspect.objects(args["image"], args["host"], args["kubernetes"], timeout_s, overlays)
            if self._task.check_mode:
                return {}
            runner = Runner(self, args, pod["metadata"]["namespace"], self.task_vars)
            digest, log = runner.run(Job(needs, pod, args["host"], timeout_s, inspect.selector(pod)))
            made = image_entries(read_image_report(log), args["image"], digest, args["folder"], overlays)
        except CollectionError as exc:
            raise CollectionError(f"{args['image']}: {exc}") from exc
        return {"read": True, "digest": digest, **image_summary(made)}
