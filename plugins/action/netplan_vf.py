# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start a netplan change on the node, then confirm it over a new connection."""

from __future__ import annotations

import time
import uuid

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.utils.display import Display

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import lines
from ansible_collections.dgxspark.cluster.plugins.modules.netplan_vf import ARGUMENTS, REQUIRED_IF
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import node_disk
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric import netplan_outcome, turns
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.terminal import say

GRACE = 300  # seconds after the timer for the node to roll back and be reachable again
PAUSE = 1.0  # seconds between attempts

display = Display()


class ActionModule(ControllerAction):
    """Drive the module netplan_vf."""

    arguments = ARGUMENTS
    required_if = REQUIRED_IF
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return the module's result; a change is reported only once it is confirmed."""
        timeout = args["rollback_timeout"]
        if timeout < 10:
            raise AnsibleActionFail(f"rollback_timeout: {timeout} s is too short for netplan; give at least 10.")
        self._own = {**self._task.args, "transaction": uuid.uuid4().hex[:12]}
        host = self.variable("inventory_hostname")
        try:
            begun = turns.in_turn(self._begin, lambda text: say(f"{host}: {text}"))
            lost = False
        except AnsibleConnectionFailure as exc:
            if node_disk.fault(str(exc)):  # netplan was not started
                raise
            display.vv(lines(f"netplan_vf: the connection broke while netplan was running: {exc}"))
            begun, lost = {"changed": True, "outcome": "pending"}, True
        if begun.get("failed") or begun.get("outcome") != "pending":
            return begun
        return {**begun, **self._confirm(begun.get("rollback_timeout") or timeout, lost)}

    def _begin(self, waited: Plain | None) -> Plain:
        return self._module("begin", run=turns.this_run(), **({"waited": waited} if waited else {}))

    def _module(self, phase: str, **more: Plain) -> Plain:
        arguments = {**self._own, "phase": phase, **more}
        answer: Plain = self._execute_module(
            module_name="dgxspark.cluster.netplan_vf", module_args=arguments, task_vars=self.task_vars
        )
        return answer

    def _confirm(self, timeout: float, lost: bool) -> Plain:
        """Retry the confirmation over fresh connections until the node answers or must have rolled back."""
        until = time.monotonic() + timeout + GRACE
        said = ""
        while time.monotonic() < until:
            self._connection.reset()
            try:
                outcome = netplan_outcome.confirmed(self._module("confirm"), timeout, lost)
            except AnsibleConnectionFailure as exc:
                outcome, said = None, str(exc)
            if outcome is not None:
                return outcome
            time.sleep(PAUSE)
        return netplan_outcome.silent(timeout, GRACE, said)
