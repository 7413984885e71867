# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Begin a change of netplan on the node, then confirm it over a new connection."""

from __future__ import annotations

import getpass
import os
import platform
import time
import typing as t
import uuid

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.dgxspark.cluster.plugins.modules.netplan_vf import ARGUMENTS, REQUIRED_IF

MODULE = "dgxspark.cluster.netplan_vf"
GRACE = 300  # seconds after the timer for the node to go back and to be reachable again
PAUSE = 1.0  # seconds between attempts

display = Display()


class ActionModule(ActionBase):
    """Drive the module netplan_vf."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the module's result; a change is reported only once it is confirmed."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        checked, arguments = self.validate_argument_spec(ARGUMENTS, required_if=REQUIRED_IF)
        timeout = checked.validated_parameters["rollback_timeout"]
        if timeout < 10:
            raise AnsibleActionFail(f"rollback_timeout: {timeout} s leave netplan no time; give at least 10.")
        arguments = {**arguments, "transaction": uuid.uuid4().hex[:12], "phase": "begin", "by": _this_run()}
        try:
            begun = self._execute_module(module_name=MODULE, module_args=arguments, task_vars=task_vars)
        except AnsibleConnectionFailure as exc:
            display.vv(f"netplan_vf: the connection broke while netplan was at work: {exc}")
            begun = {"changed": True, "outcome": "pending", "lost": True}
        lost = begun.pop("lost", False)
        if begun.get("failed") or begun.get("outcome") != "pending":
            return {**result, **begun}
        return {**result, **begun, **self._confirm(arguments, timeout, task_vars, lost)}

    def _confirm(self, arguments: dict[str, t.Any], timeout: float, task_vars: t.Any, lost: bool) -> dict[str, t.Any]:
        """Confirm over a fresh connection, again and again until the node has answered or must have gone back."""
        until = time.monotonic() + timeout + GRACE
        said = ""
        while time.monotonic() < until:
            self._connection.reset()
            try:
                answer = self._execute_module(
                    module_name=MODULE, module_args={**arguments, "phase": "confirm"}, task_vars=task_vars
                )
            except AnsibleConnectionFailure as exc:
                said = str(exc)
                answer = {"outcome": "waiting"}
            outcome = answer.get("outcome")
            if answer.get("failed"):
                return answer  # type: ignore[no-any-return]
            if outcome == "confirmed":
                return {"outcome": outcome, "changed": True}
            if outcome == "rolled_back":
                return _failure(
                    "The change cut this node off from the controller; it has gone back to its old configuration by "
                    f"itself after {timeout} s. What was changed: {answer.get('message')}"
                )
            if outcome == "too_slow":
                return _failure(
                    f"netplan was not done within {timeout} s, and the node has gone back to its old configuration by "
                    f"itself. Give it more time (rollback_timeout). What was to be changed: {answer.get('message')}"
                )
            if outcome == "unknown":
                return _failure(
                    f"The connection broke before the change began, and nothing was changed. {answer.get('message')}"
                    if lost
                    else "The change was begun, and the node has lost track of it: it has been restarted meanwhile. "
                    "What holds is the configuration before it, or after it; run again. " + str(answer.get("message"))
                )
            time.sleep(PAUSE)
        return _failure(
            f"The node has not answered since the change, not even {GRACE} s after its timer ({timeout} s) must have "
            f"gone off and brought the old configuration back. Look at its console. The last error: {said}"
        )


def _this_run() -> str:
    """Return a name of this run that an owner can find: who started it, and where."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        user = f"user {os.getuid()}"
    return f"the run of {user} on {platform.node()} (process {os.getppid()})"


def _failure(message: str) -> dict[str, t.Any]:
    return {"failed": True, "changed": False, "outcome": "rolled_back", "msg": message}
