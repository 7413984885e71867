# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change of netplan's files waits for that of another run, or rolls back what an interrupted run left unconfirmed."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.turn import WAIT
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric import rollback
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric.rollback import Host
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

START_WAIT = 30.0  # seconds for the start of a change's guard, on a busy node


class Waited(t.NamedTuple):
    """A change of another run that this one waits for. since: when that began, on the host's clock."""

    id: str
    who: str
    since: float


def settle(host: Host, warnings: list[str], waited: Waited | None, until: float) -> Waited | None:
    """Finish a pending change: wait while its guard runs, else roll back now. Changes never stack.

    Returns the change for which to wait longer than `until`. None: there is none; but another run may begin its own right
    afterwards: check again while holding the lock.
    """
    while identity := rollback.pending(host):
        if waited is None or waited.id != identity:
            waited = Waited(identity, rollback.who(host.document("journal.json")), host.clock())
        patience = waited.since + START_WAIT
        if _alive(host, identity, patience):
            if host.clock() >= until:
                return waited
            host.sleep(1)
            continue
        with host.lock(seconds=WAIT):
            # The run that recorded it held the lock until its guard had started.
            if _alive(host, identity, patience):
                continue
            last = rollback.roll_back(host, identity, "an interrupted run")
        if last and rollback.pending(host):
            raise CollectionError(f"An earlier change could not be rolled back: {'; '.join(last['failed'])}")
        if last:
            waited = None
            warnings.append(f"An earlier unconfirmed change was rolled back first ({last['summary']}).")
    if waited:
        state = rollback.ended(host, waited.id).get("state")
        how = {"confirmed": "confirmed", "rolled_back": "rolled back"}.get(str(state), "over")
        warnings.append(
            f"Another run was changing this node's netplan files: {waited.who}. This run waited until that change was "
            f"{how}, and read the node again. Run one at a time: the last run's inventory now applies."
        )
    return None


def _alive(host: Host, identity: str, patience: float) -> bool:
    """Whether a pending change has a guard: one that runs, or one that is starting."""
    if host.command(["systemctl", "is-active", "--quiet", rollback.guard_unit(identity)])[0] == 0:
        return host.clock() < rollback.deadline_of(host, identity) + rollback.COMMAND_LIMIT
    return rollback.pending(host) == identity and host.text("started") is None and host.clock() < patience
