# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have a pod read an engine's image on one node, take it away again, and make knowledge of what it said."""

from __future__ import annotations

import contextlib
import time

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.image_inspect import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, inspect, pulls
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import inspected

INTERVAL_S = 2


class ActionModule(ControllerAction):
    """Make the pod, wait, read, decide."""

    arguments = ARGUMENTS
    initial = {"read": False, "files": []}  # noqa: RUF012 - never changed
    _requires_connection = True

    def act(self, asked: Plain) -> Plain:
        """Return the entries as files; nothing is written here."""
        self._asked, overlays = asked, asked["knowledge_dirs"]
        try:
            needs, pod = inspect.objects(asked["image"], asked["host"], asked["kubernetes"], asked["timeout"], overlays)
            self._place = {**ask.where(asked), "namespace": pod["metadata"]["namespace"]}
            if self._task.check_mode:
                return {}
            digest, log = self._look(needs, pod)
            made = inspected.entries(inspected.document(log), asked["image"], digest, asked["folder"], overlays)
        except CollectionError as exc:
            raise CollectionError(f"{asked['image']}: {exc}") from exc
        return {"read": True, "digest": digest, **inspected.told(made)}

    def _look(self, needs: list[Plain], pod: Plain) -> tuple[str, str]:
        """Return the digest of what the pod ran, and its log."""
        self._remove(pod, needs)  # of a run that was killed
        try:
            self._do({"resource_definition": [*needs, pod]})
            return self._wait(pod), self._log(pod)
        finally:
            self._remove(pod, needs)

    def _wait(self, pod: Plain) -> str:
        host, asked = self._asked["host"], self._asked
        watch = pulls.Watch(pulls.Wanted(asked["image"], {}, {host: pod}, [], asked["timeout"]), time.monotonic())
        while True:
            pods = self._list("Pod", inspect.selector(pod))
            ended = inspect.outcome(watch, host, pods, self._list("Event", []), time.monotonic())
            if ended and ended[1]:  # what the program said of it comes first
                raise CollectionError(f"{host}: {ended[1]} {self._last(pod)}".strip())
            if ended:
                return ended[0]
            time.sleep(INTERVAL_S)

    def _list(self, kind: str, labels: list[str]) -> list[Plain]:
        return ask.objects(self, ("v1", kind), self._place, labels, self.task_vars)

    def _log(self, pod: Plain) -> str:
        place = {key: pod["metadata"][key] for key in ("name", "namespace")}
        named = {**self._cluster(), **place, "container": "inspect"}
        return str(ask.answer(self._execute_module, "kubernetes.core.k8s_log", named, self.task_vars).get("log") or "")

    def _last(self, pod: Plain) -> str:
        with contextlib.suppress(CollectionError):  # a container that was never started has no log
            return inspected.printable(self._log(pod))
        return ""

    def _remove(self, pod: Plain, needs: list[Plain]) -> None:
        gone = [pulls.bare(pod), {**pulls.bare(needs[1]), "kind": "ConfigMap"}]
        self._do({"state": "absent", "resource_definition": gone, "wait": True, "wait_timeout": 60})

    def _do(self, arguments: Plain) -> Plain:
        return ask.done(self, {**self._cluster(), **arguments}, self.task_vars)

    def _cluster(self) -> Plain:
        return {key: value for key, value in ask.where(self._asked).items() if key != "namespace"}
