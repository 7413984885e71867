# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait for an asynchronous task on a node, and print its progress from time to time."""

from __future__ import annotations

import base64
import time

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json
from ansible_collections.dgxspark.cluster.plugins.modules.weights_wait import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.terminal import Progress
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.transfer import pace

# Ansible waits 2.5 s until the task has written its file, and then says that it has started. A busy node takes longer.
_STARTING_S = 60.0


class ActionModule(ControllerAction):
    """Ask, report, wait."""

    arguments = ARGUMENTS
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return the task's own result."""
        host = str(self.task_vars.get("inventory_hostname", ""))
        progress = Progress()
        until = time.monotonic() + _STARTING_S
        while self._not_begun(args["jid"]) and time.monotonic() < until:
            time.sleep(1)
        while True:
            began = time.monotonic()
            seen = self._job(args["jid"], "status")
            if seen.get("failed") or seen.get("finished"):
                self._job(args["jid"], "cleanup")
                if seen.get("failed") and not seen.get("msg"):
                    seen["msg"] = (
                        f"{host}: {args['what']}: the task ended without any output. Run again: it resumes from here."
                    )
                return seen
            progress.tell(pace.line(host, args["what"], self._told(args["progress"])))
            time.sleep(pace.pause(args["interval"], time.monotonic() - began))

    def _folder(self) -> str:
        return str(self._remote_expand_user(self.get_shell_option("async_dir", default="~/.ansible_async")))

    def _not_begun(self, jid: str) -> bool:
        seen = self._execute_module(
            module_name="ansible.builtin.stat",
            module_args={"path": f"{self._folder()}/{jid}"},
            task_vars=self.task_vars,
        )
        state = seen.get("stat")
        return isinstance(state, dict) and state.get("exists") is False

    def _job(self, jid: str, mode: str) -> Plain:
        arguments = {"jid": jid, "mode": mode, "_async_dir": self._folder()}
        seen: Plain = self._execute_module(
            module_name="ansible.builtin.async_status", module_args=arguments, task_vars=self.task_vars
        )
        return seen

    def _told(self, path: str) -> Plain:
        seen = self._execute_module(
            module_name="ansible.builtin.slurp", module_args={"src": path}, task_vars=self.task_vars
        )
        try:
            told = from_json(base64.b64decode(seen["content"]))
        except (KeyError, ValueError):  # not written yet, or removed already
            return {}
        return told if isinstance(told, dict) else {}
