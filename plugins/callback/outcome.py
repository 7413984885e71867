# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: outcome
type: notification
short_description: What a run failed on, as JSON for the program that started it
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Appends a line of JSON to a file for each failed task and each host that does not answer, when it happens, and one with the run's
    custom statistics (M(ansible.builtin.set_stats)) at its end. C(matrix) runs its steps with it. What a run prints stays as it is.
options:
  file:
    description: The file.
    type: path
    required: true
    env:
      - name: DGXSPARK_OUTCOME_FILE
requirements:
  - C(callbacks_enabled = dgxspark.cluster.outcome) in C(ansible.cfg), or E(ANSIBLE_CALLBACKS_ENABLED)
"""

import pathlib
import typing as t

from ansible.plugins.callback import CallbackBase

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import outcome


class CallbackModule(CallbackBase):  # type: ignore[misc,unused-ignore]
    """Notification callback `dgxspark.cluster.outcome`."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "dgxspark.cluster.outcome"
    CALLBACK_NEEDS_ENABLED = True

    @property
    def _place(self) -> pathlib.Path:
        return pathlib.Path(self.get_option("file"))

    def _note(self, event: t.Literal["failed", "unreachable"], result: t.Any) -> None:
        outcome.note(self._place, outcome.failure(event, result.host.get_name(), result.result))

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        if not ignore_errors and not (result.task.loop and "results" in result.result):
            self._note("failed", result)

    def v2_runner_item_on_failed(self, result: t.Any) -> None:
        if not result.task.ignore_errors:
            self._note("failed", result)

    def v2_runner_on_unreachable(self, result: t.Any) -> None:
        self._note("unreachable", result)

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        outcome.note(self._place, {"event": "stats", "stats": dict(stats.custom.get("_run", {}))})
