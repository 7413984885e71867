# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drain a node of its ranks and say on it that we did, or let pods in again where a run has drained."""

from __future__ import annotations

import time

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json, line
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.k3s_drain import ARGUMENTS, REQUIRED_IF
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.k3s import drained

PAUSE_S = 2


class ActionModule(ControllerAction):
    """Drive kubectl."""

    arguments = ARGUMENTS
    required_if = REQUIRED_IF
    initial = {"nodes": []}  # noqa: RUF012 - never changed
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return the nodes that were drained, or given back."""
        if self._task.check_mode:
            return {"skipped": True, "msg": "Check mode drains no node."}
        self.kubectl = args["kubectl"]
        return self._drain(args) if args["state"] == "drained" else self._give_back(args)

    def _drain(self, args: Plain) -> Plain:
        (name,) = args["names"]
        self.result["changed"] = True
        if name not in drained.theirs(from_json(self._run("get", "nodes", "--output=json"), "kubectl")):
            self._patch(name, drained.cordon())
        # With --force: a benchmark's pods have no controller, and kubectl would refuse to evict them.
        flags = ["--delete-emptydir-data", "--force", f"--timeout={args['timeout']}s"]
        try:
            self._run("drain", name, f"--pod-selector={args['selector']}", *flags)
        except CollectionError as exc:
            self._give_back({**args, "timeout": 0})
            raise CollectionError(
                f"{name} runs ranks ({', '.join(args['ranks'])}), and they were not gone within {args['timeout']} s: {exc} Nothing was "
                "changed. Stop the model first (k8s_dgx_state=absent)."
            ) from exc
        return {"nodes": [name]}

    def _give_back(self, args: Plain) -> Plain:
        until = time.monotonic() + args["timeout"]
        while True:  # the server may be the node that was restarted
            try:
                left = drained.ours(from_json(self._run("get", "nodes", "--output=json"), "kubectl"))
                names = [name for name in args["names"] if name in left]
                for name in names:
                    self._patch(name, drained.uncordon())
                return {"changed": bool(names) or self.result["changed"], "nodes": names}
            except CollectionError as exc:
                if time.monotonic() > until:
                    raise CollectionError(drained.stays(args["names"], str(exc))) from exc
            time.sleep(PAUSE_S)

    def _patch(self, name: str, patch: str) -> None:
        self._run("patch", "node", name, "--type=merge", f"--patch={patch}")

    def _run(self, *words: str) -> str:
        arguments = {"argv": [*self.kubectl, *words]}
        said = self._execute_module(
            module_name="ansible.builtin.command", module_args=arguments, task_vars=self.task_vars
        )
        if said.get("rc", 1) != 0:
            raise CollectionError(line(str(said.get("stderr") or said.get("msg") or "no answer"), 300).strip())
        return str(said["stdout"])
