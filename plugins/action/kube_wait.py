# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Look at a group of ranks until it is as asked, or until it is known why it will not be."""

from __future__ import annotations

import time

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import to_plain
from ansible_collections.dgxspark.cluster.plugins.modules.kube_wait import ARGUMENTS, REQUIRED_IF
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, status
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.terminal import say


class ActionModule(ControllerAction):
    """Ask, judge, wait."""

    arguments = ARGUMENTS
    required_if = REQUIRED_IF
    _requires_connection = True
    _before: status.Before | None = None  # what there was when this began to look

    def act(self, asked: Plain) -> Plain:
        """Return the group's state; failed with its cause where it is stuck or the time is over."""
        start = time.monotonic()
        said = ""
        while True:
            seen = self._look(asked)
            seconds = round(time.monotonic() - start, 1)
            causes = " ".join(map(str, seen["findings"]))
            result = {"ready": seen["ready"], "findings": to_plain(seen["findings"]), "seconds": seconds}
            result |= {key: seen[key] for key in ("codes",) if key in seen}
            if seen["state"] == "ready" or self._task.check_mode:
                return result
            if seen["state"] == "stuck":
                return {**result, "failed": True, "msg": causes}
            if seconds >= asked["timeout"]:
                return {**result, "failed": True, "msg": status.late(asked, seen, seconds)}
            if causes != said:
                said = causes
                say(f"kube_wait: {causes or 'going on'}")
            time.sleep(asked["interval"])

    def _look(self, asked: Plain) -> Plain:
        pods = ask.of_instance(self, asked, [("v1", "Pod")], self.task_vars)
        events: list[Plain] = []
        sets: list[Plain] | None = None
        # Who owns the pods is asked where pods are missing. (In check mode nothing was applied; pods that end have no owner.)
        if len(pods) < {"gone": 1, "ready": asked["ranks"], "ended": 0}[asked["state"]] and not self._task.check_mode:
            sets = ask.of_instance(self, asked, [("apps/v1", "StatefulSet")], self.task_vars)
        if (pods or sets) and status.judge(asked, pods, events, self._before, sets)["state"] != "ready":
            events = ask.objects(self, ("v1", "Event"), ask.where(asked), [], self.task_vars)
        if self._before is None:
            self._before = status.first_look(pods, events, sets or ())
        return status.judge(asked, pods, events, self._before, sets)
