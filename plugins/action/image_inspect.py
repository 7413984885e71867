# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have a pod read an engine's image on one node, take it away again, and make knowledge of what it said."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.image_inspect import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, inspect, pulls
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import inspected

INTERVAL_S = 2


class ActionModule(ActionBase):
    """Make the pod, wait, read, decide."""

    _supports_check_mode = True
    _supports_diff = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the entries as files; nothing is written here."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        checked, _arguments = self.validate_argument_spec(ARGUMENTS)
        asked = checked.validated_parameters
        self._asked, self._vars = asked, task_vars
        result |= {"changed": False, "read": False, "files": []}
        overlays = asked["knowledge_dirs"]
        try:
            needs, pod = inspect.objects(asked["image"], asked["host"], asked["kubernetes"], asked["timeout"], overlays)
            self._place = {**ask.where(asked), "namespace": pod["metadata"]["namespace"]}
            if self._task.check_mode:
                return result
            digest, log = self._look(needs, pod)
            made = inspected.entries(inspected.document(log), asked["image"], digest, asked["folder"], overlays)
        except CollectionError as exc:
            return {**result, "failed": True, "msg": f"image_inspect: {asked['image']}: {exc}"}
        files = [dataclasses.asdict(file) for file in made.files]
        table = (made.table or {}).get("id")
        return {**result, "read": True, "digest": digest, "entry": made.image, "table": table, "files": files}

    def _look(self, needs: list[Plain], pod: Plain) -> tuple[str, str]:
        """Return the digest of what the pod ran, and its log."""
        self._remove(pod, needs)  # of a run that was killed
        try:
            self._do({"resource_definition": [*needs, pod]})
            digest = self._wait(pod)
            named = {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"], "container": "inspect"}
            return digest, self._log(named)
        finally:
            self._remove(pod, needs)

    def _wait(self, pod: Plain) -> str:
        host, asked = self._asked["host"], self._asked
        watch = pulls.Watch(pulls.Wanted(asked["image"], {}, {host: pod}, [], asked["timeout"]), time.monotonic())
        while True:
            pods = ask.objects(self, ("v1", "Pod"), self._place, inspect.selector(pod), self._vars)
            events = ask.objects(self, ("v1", "Event"), self._place, [], self._vars)
            runs = [f"{host}: it was pulled, and its program still runs"] if host in watch.digests else []
            failed = watch.ended(pods, events, time.monotonic(), runs)
            why = inspect.fault(pods[0]) if pods else None
            if host in watch.digests and why is not None:
                if why:  # what the program said of it comes first
                    raise CollectionError(f"{host}: {why} {self._last(pod)}".strip())
                return watch.digests[host]
            if host in watch.digests and not pods:
                failed = [f"{host}: its pod was taken away by somebody else. Run again."]
            if failed:
                raise CollectionError(" ".join(failed))
            time.sleep(INTERVAL_S)

    def _last(self, pod: Plain) -> str:
        named = {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"], "container": "inspect"}
        with contextlib.suppress(CollectionError):  # a container that was never started has no log
            return inspected.printable(self._log(named))
        return ""

    def _remove(self, pod: Plain, needs: list[Plain]) -> None:
        gone = [pulls.bare(pod), {**pulls.bare(needs[1]), "kind": "ConfigMap"}]
        self._do({"state": "absent", "resource_definition": gone, "wait": True, "wait_timeout": 60})

    def _do(self, arguments: Plain) -> Plain:
        return ask.done(self, {**self._cluster(), **arguments}, self._vars)

    def _log(self, named: Plain) -> str:
        said = ask.answer(self._execute_module, "kubernetes.core.k8s_log", {**self._cluster(), **named}, self._vars)
        return str(said.get("log") or "")

    def _cluster(self) -> Plain:
        return {key: value for key, value in ask.where(self._asked).items() if key != "namespace"}
