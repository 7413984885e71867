# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the NCCL benchmark's ranks once as pods, and always remove them."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.nccl_bench_pods import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, bench, beside, group

GONE_S = 120


class ActionModule(ControllerAction):
    """Create the pods, wait, read."""

    arguments = ARGUMENTS
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return how each rank ended; failed with the reason if none could be started."""
        fabric = self.variable("dgxspark_plan", {}).get("hosts", {})
        made = bench.bench(args["environments"], fabric, args["job"], args["kubernetes"])
        self._cluster = ask.where(args)
        if self._task.check_mode:
            return {"ranks": {host: {"fault": "check mode runs no pod"} for host in made["nodes"]}}
        self._take_away(made)  # left by a killed run
        try:
            for objects in (made["common"], made["ranks"]):
                self._apply(objects)
            waited = group.wait(self, {**self._cluster, **made["group"], "state": "ended"}, self.task_vars)
            logs = [ask.log_if_any(self, pod, self._cluster, self.task_vars) for pod in made["ranks"]]
            return {"ranks": bench.done(made, waited, logs)}
        finally:
            self._take_away(made)

    def _apply(self, objects: list[Plain]) -> None:
        there = ask.others(self, objects, self._cluster, self.task_vars)
        said = group.put(self, beside.kept(objects, there)[0], self._cluster, self.task_vars)
        if said.get("failed"):
            raise CollectionError(" ".join(str(said.get("msg", said)).split()))

    def _take_away(self, made: Plain) -> None:
        """Remove the pods and wait until their VFs are back; anything left is a warning."""
        mine = [*made["ranks"], *(each for each in made["common"] if each["kind"] != "Namespace")]
        ask.k8s(self, {**self._cluster, "state": "absent", "resource_definition": mine}, self.task_vars)
        try:
            args = {**self._cluster, **made["group"], "state": "gone", "timeout": GONE_S}
            left = group.wait(self, args, self.task_vars)
        except CollectionError as exc:
            left = {"msg": str(exc)}
        if "msg" in left:
            self.result.setdefault("warnings", []).append(left["msg"])
