# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have pods pull an engine's image on all nodes of a plan, wait for them, and always remove them."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.dgxspark.cluster.plugins.modules.kube_pull import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, image, pulls
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.terminal import Progress

INTERVAL_S = 2


class ActionModule(ControllerAction):
    """Ask, create pods, wait, judge."""

    arguments = ARGUMENTS
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return the digest that all nodes have; failed with a line for each node without the image."""
        self._args, served = args, args["served"]
        self._place = {**ask.where(args), "namespace": served["namespace"]}
        watch = pulls.Watch(pulls.wanted(served, self._list("Node"), self._args["timeout"]), time.monotonic())
        recorded, check = image.record(self._list("ConfigMap", image.OURS)), self._task.check_mode
        failed = [] if check or not watch.wanted.pods else self._pull(watch, pulls.selector(served["instance"]))
        return pulls.result(watch, failed, recorded, served["namespace"], self._args["accept"], check)

    def _pull(self, watch: pulls.Watch, labels: list[str]) -> list[str]:
        """Return the failures."""
        pods = list(watch.wanted.pods.values())
        self._remove(self._list("Pod", labels))  # left by a killed run
        try:
            self._do({"resource_definition": pods})
            progress = Progress()
            while True:
                failed = watch.ended(self._list("Pod", labels), self._list("Event"), time.monotonic())
                if failed is not None:
                    return failed
                progress.tell(f"pull of {watch.wanted.image}: {'; '.join(watch.waiting)}")
                time.sleep(INTERVAL_S)
        finally:
            self._remove(pods)

    def _remove(self, pods: list[Plain]) -> None:
        if pods:
            gone = {
                "state": "absent",
                "resource_definition": list(map(pulls.bare, pods)),
                "wait": True,
                "wait_timeout": 60,
            }
            self._do(gone)

    def _list(self, kind: str, labels: t.Sequence[str] = ()) -> list[Plain]:
        place = self._place if kind != "Node" else {k: v for k, v in self._place.items() if k != "namespace"}
        return ask.objects(self, ("v1", kind), place, labels, self.task_vars)

    def _do(self, arguments: Plain) -> Plain:
        return ask.done(self, {**ask.where(self._args), **arguments}, self.task_vars)
