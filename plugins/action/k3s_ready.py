# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Poll the cluster's nodes until they are as planned or the timeout expires."""

from __future__ import annotations

import time

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.k3s_ready import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s.nodes import problems
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask

INTERVAL_S = 2
ASK = ["get", "nodes", "--output=json"]


class ActionModule(ControllerAction):
    """Ask, judge, wait."""

    arguments = ARGUMENTS
    initial = {"problems": []}  # noqa: RUF012 - never changed
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return nothing if all is well; failed with the problems otherwise. Check mode does not poll."""
        if self._task.check_mode:
            return {"skipped": True, "msg": "Check mode has changed no node."}
        plans = {host: plan for host, plan in self.of_hosts(args["plans"]).items() if plan}
        until = time.monotonic() + args["timeout"]
        while True:
            found = self._look(args, plans) if args["kubectl"] else self._ask(args, plans)
            if not found:
                return {}
            if time.monotonic() > until:
                return {"failed": True, "problems": found, "msg": " ".join(found)}
            time.sleep(INTERVAL_S)

    def _ask(self, args: Plain, plans: Plain) -> list[str]:
        try:
            listed = ask.objects(self, ("v1", "Node"), ask.where(args), [], self.task_vars)
        except CollectionError as exc:
            return [str(exc)]
        return [str(finding) for finding in problems({"items": listed}, plans)]

    def _look(self, args: Plain, plans: Plain) -> list[str]:
        arguments = {"argv": [*args["kubectl"], *ASK]}
        said = self._execute_module(
            module_name="ansible.builtin.command", module_args=arguments, task_vars=self.task_vars
        )
        if said.get("rc", 1) != 0:
            why = said.get("stderr") or said.get("msg") or "no answer"
            return [f"{self._task.delegate_to}: its API does not answer: {why}"]
        return [str(finding) for finding in problems(from_json(said["stdout"], "kubectl"), plans)]
