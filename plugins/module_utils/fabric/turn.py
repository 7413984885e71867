# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose turn it is to change a node. A run that was cut off, or that a newer run has overtaken, changes nothing any more.

ssh does not end a module whose controller is gone. So a module that has to wait for another run does that for a few seconds only
and then returns: a controller that is still there starts it again. And before it changes anything, it looks whether anybody still
reads its output, and whether a run that was started later has been on the node.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import select
import typing as t
from dataclasses import asdict, dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils import foreign
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.locks import holder
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain

RUNS = "/run/dgxspark-runs.json"
LOCKS = ("/run/dgxspark-sriov.lock", "/run/dgxspark-netplan.lock")  # held while a run changes VFs, or netplan's files
WAIT = 10.0  # seconds that a module waits for another run before it returns to its controller

RUN_OPTIONS = {
    "id": {"type": "str", "required": True},
    "controller": {"type": "str", "required": True},
    "started": {"type": "float", "required": True},
    "age": {"type": "float", "required": True},
    "by": {"type": "str", "required": True},
}


class Waiting(Exception):
    """Another run is at work on the node. The text says which."""


@dataclass(frozen=True, slots=True)
class Started:
    """A run: its identity, and when it was started. Two runs of one controller are compared by its clock, others by the node's.

    started: seconds on the controller's clock. seen: on the node's clock. by: the run in words.
    """

    id: str
    controller: str
    started: float
    seen: float
    by: str

    def newer_than(self, other: Started) -> bool:
        """Whether this run was started later."""
        if self.controller == other.controller:
            return self.started > other.started
        return self.seen > other.seen


def attended(descriptor: int = 1) -> bool:
    """Whether somebody still reads what this process writes there: a closed pipe, socket or terminal is reported as an error."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return not any(event & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for _fd, event in poll.poll(0))


def at_work(root: str = "") -> str | None:
    """Return the run that is changing this node at this moment, in words; None if there is none."""
    for path in LOCKS:
        if who := holder(root.rstrip("/") + path):
            return who
    return None


class Turn:
    """The place of one run among those that change this node. Without a run (a module called by itself) only `attended` counts.

    run: of the action, as in RUN_OPTIONS; clock: the node's, in seconds; root: prefix of paths, for tests.
    """

    def __init__(
        self,
        run: t.Mapping[str, t.Any] | None,
        clock: t.Callable[[], float],
        root: str = "",
        listening: t.Callable[[], bool] = attended,
    ) -> None:
        self.path = pathlib.Path(root.rstrip("/") + RUNS)
        self.listening = listening
        self.own: Started | None = None
        if run:
            fields = {key: run[key] for key in ("id", "controller", "started", "by")}
            self.own = Started(**fields, seen=clock() - run["age"])

    @property
    def by(self) -> str:
        """This run in words."""
        where = os.environ.get("SSH_CONNECTION", "").split(" ")[0]
        return self.own.by if self.own else f"a run{f' from {where}' if where else ''} (process {os.getpid()})"

    def enter(self) -> None:
        """Record this run, unless a newer one has been here."""
        if self.own is None:
            return
        with self._newest() as (file, newest):
            if newest is None or self.own.newer_than(newest):
                file.seek(0)
                file.truncate()
                json.dump(asdict(self.own), file)

    def check(self) -> None:
        """Raise CollectionError if this run must not change the node. Call it right before the change, with its lock held."""
        if not self.listening():
            raise CollectionError("This run's controller is gone, so nothing was changed.")
        if self.own is None:
            return
        with self._newest() as (_file, newest):
            if newest is not None and newest.id != self.own.id and newest.newer_than(self.own):
                raise CollectionError(
                    f"A newer run has started on this node: {newest.by}. This one yields to it, and changes nothing. If its inventory "
                    "is the one that you want, run it again after the other has ended."
                )

    @contextlib.contextmanager
    def _newest(self) -> t.Iterator[tuple[t.TextIO, Started | None]]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+", encoding="utf-8", errors="replace") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                newest = from_plain(Started, foreign.from_json(file.read(65536)))
            except CollectionError:  # none yet, or a run died while it wrote
                newest = None
            yield file, newest
