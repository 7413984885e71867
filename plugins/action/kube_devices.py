# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Look at what nodes offer until it is what they should, and start plugins again that have looked too early."""

from __future__ import annotations

import time
import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.kube_devices import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, offered
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import MANAGER, PART, Plain

display = Display()
OURS = f"app.kubernetes.io/managed-by={MANAGER}"
INTERVAL_S = 2


class ActionModule(ActionBase):
    """Ask, judge, start again, wait."""

    _supports_check_mode = True
    _supports_diff = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return what nodes lack; failed with the reasons where they lack it when the time is over."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        checked, _arguments = self.validate_argument_spec(ARGUMENTS)
        asked = checked.validated_parameters
        try:
            return {**result, **self._wait(asked, task_vars)}
        except CollectionError as exc:
            return {**result, "changed": False, "failed": True, "msg": f"kube_devices: {exc}"}

    def _wait(self, asked: Plain, task_vars: dict[str, t.Any] | None) -> Plain:
        start = time.monotonic()
        watch = offered.Watch(asked["patience"])
        while True:
            found = offered.offered(self._there(asked, task_vars), asked["hosts"], asked["ranks"], asked["facts"])
            now = time.monotonic()
            for node, pod in watch.due(found, now).items() if not self._task.check_mode else ():
                display.display(f"kube_devices: {node}: the SR-IOV device plugin starts again ({pod})")
                gone = {"state": "absent", "api_version": "v1", "kind": "Pod", "name": pod, "namespace": "kube-system"}
                ask.done(self, {**ask.where(asked), **gone}, task_vars)
            result = {"changed": bool(watch.restarted), "lacking": found["lacking"], "restarted": watch.restarted}
            if not found["lacking"] or self._task.check_mode:
                return result
            if now - start >= asked["timeout"] or watch.over(found, now):
                return {**result, "failed": True, "msg": " ".join(found["lacking"])}
            time.sleep(INTERVAL_S)

    def _there(self, asked: Plain, task_vars: dict[str, t.Any] | None) -> list[Plain]:
        place, part = ask.where(asked), [OURS, f"{PART}=sriov_device_plugin"]
        system = {**place, "namespace": "kube-system"}
        nodes = ask.objects(self, ("v1", "Node"), place, [], task_vars)
        pods = ask.objects(self, ("v1", "Pod"), system, part, task_vars)
        return nodes + pods + ask.objects(self, ("v1", "ConfigMap"), system, part, task_vars)
