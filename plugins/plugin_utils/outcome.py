# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a playbook ended, for the program that started it: the callback `outcome` notes it in a file, one event per line."""

from __future__ import annotations

import json
import pathlib
import typing as t
from dataclasses import dataclass

from ansible import constants

from ansible_collections.dgxspark.cluster.plugins.module_utils import foreign
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.answer import reason

CALLBACK = "dgxspark.cluster.outcome"
LOST = (
    "dgxspark_lost_hosts"  # in a run's custom statistics: the hosts without which it did not go on (role k8s_platform)
)
_MARKS = ("timed_out", "not_gone")  # keys of a task's result (module kube_wait)

Plain = dict[str, t.Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """message: why the last task failed, or the last host does not answer.

    lost: the hosts that did not answer, or without which the run did not go on. timed_out: whether a task waited in vain for ranks
    to be ready; not_gone: or for old ones to be gone.
    """

    message: str = ""
    lost: tuple[str, ...] = ()
    timed_out: bool = False
    not_gone: bool = False


def environment(place: pathlib.Path) -> dict[str, str]:
    """Return the variables with which a playbook notes its outcome in a file, and calls the owner's own callbacks as ever."""
    enabled = [name for name in constants.CALLBACKS_ENABLED if name != CALLBACK]
    return {"ANSIBLE_CALLBACKS_ENABLED": ",".join([*enabled, CALLBACK]), "DGXSPARK_OUTCOME_FILE": str(place)}


def failure(event: t.Literal["failed", "unreachable"], host: str, result: t.Mapping[str, t.Any]) -> Plain:
    """Return the event of a task that failed, or of a host that does not answer."""
    why = foreign.line(" ".join(reason(result).split()))
    return {"event": event, "host": host, "why": why, **{mark: result.get(mark) is True for mark in _MARKS}}


def note(place: pathlib.Path, event: Plain) -> None:
    """Append an event, when it happens: the run may be killed."""
    with place.open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(event)}\n")


def read(place: pathlib.Path) -> Outcome:
    """Return the outcome that a playbook noted in a file."""
    events = list(_events(place))
    failures = [each for each in events if "why" in each]
    lost = [each["host"] for each in failures if each["event"] == "unreachable"]
    lost += [host for each in events if each["event"] == "stats" for host in each["stats"].get(LOST, ())]
    message = failures[-1]["why"] if failures else ""
    marks = {mark: any(each[mark] for each in failures) for mark in _MARKS}
    return Outcome(message, tuple(dict.fromkeys(lost)), **marks)


def _events(place: pathlib.Path) -> t.Iterator[Plain]:
    """Yield the events of a file; a run that was killed leaves no file, or the beginning of a last line."""
    try:
        lines = foreign.read_text(place, str(place), foreign.MIB).splitlines()
    except foreign.Unreadable:
        return
    for line in lines:
        try:
            yield foreign.from_json(line)
        except foreign.Unreadable:
            return
