"""Test callback: end the run by SIGKILL when task number DGXSPARK_KILL_AT begins; write the number of tasks seen.

A controller that dies between two tasks leaves exactly what the tasks before have done.
"""

from __future__ import annotations

import os
import pathlib
import signal

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: kill_at_task
type: aggregate
short_description: End a run at a task boundary
description: Ends the run by SIGKILL when the task of the number in DGXSPARK_KILL_AT begins.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "kill_at_task"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def v2_playbook_on_task_start(self, task, is_conditional):  # type: ignore[no-untyped-def]
        self.count += 1
        pathlib.Path(os.environ["DGXSPARK_TASK_COUNT"]).write_text(
            f"{self.count} {task.get_name()}\n", encoding="utf-8"
        )
        if self.count == int(os.environ.get("DGXSPARK_KILL_AT", "0")):
            os.kill(os.getpid(), signal.SIGKILL)
