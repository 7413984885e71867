# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: answer
type: stdout
short_description: The answer, what changed, and each error once
version_added: 0.1.0
author: dgxspark.cluster contributors (@dgxspark)
description:
  - Prints what a playbook answers, the steps that change something, those that take long with their time, a host that does not
    answer in one line, and an error once for all its hosts, with its remedy and without Ansible's frame.
  - With C(-v), it prints what Ansible's own C(default) prints.
options: {}
extends_documentation_fragment:
  - default_callback
  - result_format_callback
requirements:
  - C(stdout_callback = dgxspark.cluster.answer) in C(ansible.cfg), or E(ANSIBLE_STDOUT_CALLBACK)
"""

import threading
import time
import typing as t

from ansible import constants as C
from ansible.plugins.callback.default import CallbackModule as Default

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.answer import Told, ended, seconds
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.terminal import outlive

WAIT = (15.0, 60.0)  # seconds until a step that runs is named, and from then on


class CallbackModule(Default):  # type: ignore[misc,unused-ignore]
    """Stdout callback `dgxspark.cluster.answer`."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "dgxspark.cluster.answer"

    def __init__(self) -> None:
        super().__init__()
        outlive()
        self.told, self.started = Told(), time.monotonic()
        self.timer: threading.Timer | None = None

    @property
    def whole(self) -> bool:
        """Whether Ansible's own output is asked for."""
        return bool(self._display.verbosity)

    def _say(self, lines: t.Iterable[str]) -> None:
        for line in lines:
            bad = line.startswith(("FAILED", "not reached"))
            colour = C.COLOR_ERROR if bad else C.COLOR_CHANGED if line.startswith(("changed", "would")) else None
            self._display.display(line, color=colour)

    def _waiting(self) -> None:
        self._display.display(f"…        {self.told.step}: {seconds(time.monotonic() - self.told.began)} so far")
        self._watch(WAIT[1])

    def _watch(self, wait: float) -> None:
        if self.timer:
            self.timer.cancel()
        self.timer = threading.Timer(wait, self._waiting)
        self.timer.daemon = True
        self.timer.start()

    def v2_on_file_diff(self, result: t.Any) -> None:
        if self.whole:
            super().v2_on_file_diff(result)
            return
        looped = result.task.loop and "results" in result.result
        for each in result.result["results"] if looped else (result.result,):
            if each.get("diff") and each.get("changed"):
                self.told.differ(self.host_label(result), self._get_diff(each["diff"]))

    def _task_start(self, task: t.Any, prefix: str | None = None) -> None:
        if self.whole:
            super()._task_start(task, prefix=prefix)
            return
        self._say(self.told.start(task.get_name().strip(), time.monotonic()))
        self._watch(WAIT[0])

    def v2_playbook_on_start(self, playbook: t.Any) -> None:
        if self.whole:
            super().v2_playbook_on_start(playbook)

    def v2_playbook_on_play_start(self, play: t.Any) -> None:
        if self.whole:
            super().v2_playbook_on_play_start(play)
        self._play = play

    def v2_playbook_on_include(self, included_file: t.Any) -> None:
        if self.whole:
            super().v2_playbook_on_include(included_file)

    def v2_playbook_on_no_hosts_matched(self) -> None:
        if self.whole:
            super().v2_playbook_on_no_hosts_matched()

    def v2_playbook_on_no_hosts_remaining(self) -> None:
        if self.whole:
            super().v2_playbook_on_no_hosts_remaining()

    def v2_runner_on_ok(self, result: t.Any) -> None:
        if self.whole:
            super().v2_runner_on_ok(result)
            return
        self._handle_warnings(result.result)
        self._note(result)
        if result.result.get("changed"):
            (self.told.would if result.task.check_mode else self.told.changed).append(self.host_label(result))

    def v2_runner_item_on_ok(self, result: t.Any) -> None:
        if self.whole:
            super().v2_runner_item_on_ok(result)
        else:
            self._note(result)

    def _note(self, result: t.Any) -> None:
        """Note what a role says by a task that does nothing else."""
        if result.task.action == "ansible.builtin.debug" and "results" not in result.result:
            self.told.note(result.result.get("msg"), "" if result.task.run_once else self.host_label(result))

    def v2_runner_on_skipped(self, result: t.Any) -> None:
        if self.whole:
            super().v2_runner_on_skipped(result)

    def v2_runner_item_on_skipped(self, result: t.Any) -> None:
        if self.whole:
            super().v2_runner_item_on_skipped(result)

    def v2_runner_retry(self, result: t.Any) -> None:
        if self.whole:
            super().v2_runner_retry(result)

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        if self.whole:
            super().v2_runner_on_failed(result, ignore_errors)
        elif not ignore_errors and not (result.task.loop and "results" in result.result):
            self._handle_warnings(result.result)
            self.told.fail(self.host_label(result), result.result)

    def v2_runner_item_on_failed(self, result: t.Any) -> None:
        if self.whole:
            super().v2_runner_item_on_failed(result)
        elif not result.task.ignore_errors:
            self.told.fail(self.host_label(result), result.result, str(self._get_item_label(result.result)))

    def v2_runner_on_unreachable(self, result: t.Any) -> None:
        if self.whole:
            super().v2_runner_on_unreachable(result)
        else:
            self.told.lose(self.host_label(result), result.result)

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        if self.timer:
            self.timer.cancel()
        if self.whole:
            super().v2_playbook_on_stats(stats)
            return
        self._say(self.told.flush(time.monotonic()))
        summary = {host: stats.summarize(host) for host in sorted(stats.processed)}
        self._display.display(ended(summary, time.monotonic() - self.started, self.told.not_made))
