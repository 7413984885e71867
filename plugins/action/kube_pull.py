# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have pods pull an engine's image on all nodes of a plan, wait for them, and take them away whatever comes of it."""

from __future__ import annotations

import time
import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.kube_pull import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, image, pulls
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import Plain

display = Display()
INTERVAL_S = 2
OTHERS_S = 10  # after the first failure, so that all nodes which fail are named


class ActionModule(ActionBase):
    """Ask, make pods, wait, judge."""

    _supports_check_mode = True
    _supports_diff = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the digest that all nodes have; failed with a line for each node that has not the image."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        checked, _arguments = self.validate_argument_spec(ARGUMENTS)
        asked = checked.validated_parameters
        self._asked, self._vars = asked, task_vars
        self._place = {**ask.where(asked), "namespace": asked["served"]["namespace"]}
        try:
            return {**result, **self._have(pulls.wanted(asked["served"], self._list("Node"), asked["timeout"]))}
        except CollectionError as exc:
            return {**result, "changed": False, "failed": True, "msg": f"kube_pull: {exc}"}

    def _have(self, wanted: pulls.Wanted) -> Plain:
        known = image.record(self._list("ConfigMap", image.OURS))
        watch, failed = pulls.Watch(wanted), list[str]()
        if wanted.pods and not self._task.check_mode:
            failed = self._pull(wanted, watch)
        digests = {**wanted.digests, **watch.digests}
        judged = image.judge(wanted.image, digests, known, self._asked["accept"])
        changed = bool(wanted.lacking if self._task.check_mode else watch.pulled)
        lines = failed or judged["problems"]
        made = {
            "changed": changed,
            "image": wanted.image,
            "digests": digests,
            "lacking": wanted.lacking,
            "pulled": watch.pulled,
        }
        made |= {"digest": judged["digest"], "record": image.record_object(self._place["namespace"], judged["record"])}
        return {**made, "failed": True, "msg": " ".join([*lines, "Nothing was stopped."])} if lines else made

    def _pull(self, wanted: pulls.Wanted, watch: pulls.Watch) -> list[str]:
        """Return what failed."""
        labels, began, first = pulls.selector(self._asked["served"]["instance"]), time.monotonic(), None
        self._remove(self._list("Pod", labels))  # of a run that was killed
        try:
            self._do("kubernetes.core.k8s", {"resource_definition": list(wanted.pods.values())})
            while True:
                now = time.monotonic()
                failed, waiting = watch.look(self._list("Pod", labels), self._list("Event"), now)
                first = first if first is not None or not failed else now
                if not waiting or (first is not None and now - first >= OTHERS_S):
                    return failed
                if now - began >= self._asked["timeout"]:
                    return [
                        *failed,
                        *(f"{line} after {now - began:.0f} s (k8s_dgx_image_timeout)." for line in waiting),
                    ]
                display.display(f"kube_pull: {wanted.image}: {'; '.join(waiting)}")
                time.sleep(INTERVAL_S)
        finally:
            self._remove(list(wanted.pods.values()))

    def _remove(self, pods: list[Plain]) -> None:
        if pods:
            gone = {
                "state": "absent",
                "resource_definition": list(map(pulls.bare, pods)),
                "wait": True,
                "wait_timeout": 60,
            }
            self._do("kubernetes.core.k8s", gone)

    def _list(self, kind: str, labels: t.Sequence[str] = ()) -> list[Plain]:
        place = self._place if kind != "Node" else {k: v for k, v in self._place.items() if k != "namespace"}
        return ask.objects(self, ("v1", kind), place, labels, self._vars)

    def _do(self, module: str, arguments: Plain) -> Plain:
        return ask.answer(self._execute_module, module, {**ask.where(self._asked), **arguments}, self._vars)
