# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Look at a group of ranks until it is as asked, or until it is known why it will not be."""

from __future__ import annotations

import time
import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain
from ansible_collections.dgxspark.cluster.plugins.modules.kube_wait import ARGUMENTS, REQUIRED_IF
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, status
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.running import selectors
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import Plain

display = Display()


class ActionModule(ActionBase):
    """Ask, judge, wait."""

    _supports_check_mode = True
    _supports_diff = False
    _before: status.Before | None = None  # what there was when this began to look

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the group's state; failed with its cause where it is stuck or the time is over."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        checked, _arguments = self.validate_argument_spec(ARGUMENTS, required_if=REQUIRED_IF)
        asked = checked.validated_parameters
        try:
            return {**result, "changed": False, **self._wait(asked, task_vars)}
        except CollectionError as exc:
            return {**result, "changed": False, "failed": True, "msg": f"kube_wait: {exc}"}

    def _wait(self, asked: dict[str, t.Any], task_vars: dict[str, t.Any] | None) -> dict[str, t.Any]:
        start = time.monotonic()
        said = ""
        while True:
            seen = self._look(asked, task_vars)
            seconds = round(time.monotonic() - start, 1)
            causes = " ".join(map(str, seen["findings"]))
            result = {"ready": seen["ready"], "findings": to_plain(seen["findings"]), "seconds": seconds}
            result |= {key: seen[key] for key in ("codes",) if key in seen}
            if seen["state"] == "ready" or self._task.check_mode:
                return result
            if seen["state"] == "stuck":
                return {**result, "failed": True, "msg": causes}
            if seconds >= asked["timeout"]:
                what = (
                    "gone"
                    if asked["state"] == "gone"
                    else f"{asked['state']} ({len(seen['ready'])} of {asked['ranks']} are)"
                )
                why = causes or "No cause is known: see the pods' logs and events."
                late = f"{asked['instance']} is not {what} after {seconds:.0f} s. {why}"
                return {**result, "failed": True, "msg": late}
            if causes != said:
                said = causes
                display.display(f"kube_wait: {causes or 'going on'}")
            time.sleep(asked["interval"])

    def _look(self, asked: dict[str, t.Any], task_vars: dict[str, t.Any] | None) -> dict[str, t.Any]:
        place, labels = ask.where(asked), selectors(asked["instance"])
        pods = ask.objects(self, ("v1", "Pod"), place, labels, task_vars)
        events: list[Plain] = []
        sets: list[Plain] | None = None
        # Who owns the pods is asked where pods are missing. (In check mode nothing was applied; pods that end have no owner.)
        if len(pods) < {"gone": 1, "ready": asked["ranks"], "ended": 0}[asked["state"]] and not self._task.check_mode:
            sets = ask.objects(self, ("apps/v1", "StatefulSet"), place, labels, task_vars)
        if (pods or sets) and self._judge(asked, pods, events, sets)["state"] != "ready":
            events = ask.objects(self, ("v1", "Event"), place, [], task_vars)
        if self._before is None:
            self._before = status.first_look(pods, events, sets or ())
        return self._judge(asked, pods, events, sets)

    def _judge(
        self, asked: dict[str, t.Any], pods: list[Plain], events: list[Plain], sets: list[Plain] | None
    ) -> Plain:
        if asked["state"] == "gone":
            return status.leaving(pods, events, sets or ())
        if asked["state"] == "ended":
            return status.ended(pods, events, asked["ranks"], asked["plan"])
        return status.group(pods, events, asked["ranks"], asked["plan"], self._before, sets)
