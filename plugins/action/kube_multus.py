# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Poll Multus until it runs on all nodes. Also retries if the API does not answer."""

from __future__ import annotations

import time

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.kube_multus import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, beside, multus, platform
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.terminal import say

INTERVAL_S = 5


class ActionModule(ControllerAction):
    """Ask, wait."""

    arguments = ARGUMENTS
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return the nodes without Multus: none, or failed with them at the timeout."""
        start = time.monotonic()
        lacking: list[str] = []
        while True:
            before, fault, pods = lacking, "", []
            try:
                pods = self._pods(args)
            except CollectionError as exc:
                fault = f"Last error: {exc}. "
            lacking = multus.lacking(args["hosts"].values(), pods)
            if not lacking:
                return {"lacking": []}
            said = f"Multus is not running on {', '.join(lacking)}"
            if self._task.check_mode or time.monotonic() - start >= args["timeout"]:
                break
            if lacking != before:
                say(f"kube_multus: {said}")
            time.sleep(INTERVAL_S)
        why = (
            f"{said} after {args['timeout']} s: ranks there would have no VFs. No rank was stopped or started. {fault}"
            f"`kubectl get pods -n {multus.SYSTEM} -l {multus.SELECTORS[1]} -o wide` and `kubectl describe` of a pod there show why."
        )
        return {"failed": True, "lacking": lacking, "msg": why}

    def _pods(self, args: Plain) -> list[Plain]:
        """Return the pods of our Multus, and if a node has none, those of others'."""
        place = ask.where(args)
        system = {**place, "namespace": multus.SYSTEM}
        pods = ask.objects(self, ("v1", "Pod"), system, multus.SELECTORS, self.task_vars)
        if not pods:
            sets = ask.objects(self, ("apps/v1", "DaemonSet"), place, [], self.task_vars)
            for each in beside.daemons("multus", sets, platform.known_parts(self.owner_dirs())):
                there = {**place, "namespace": each["metadata"]["namespace"]}
                pods += ask.objects(self, ("v1", "Pod"), there, beside.selectors(each), self.task_vars)
        return pods
