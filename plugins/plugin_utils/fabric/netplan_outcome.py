# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns a node's answer to the confirmation of a network change into a result of the action netplan_vf."""

from __future__ import annotations

import typing as t

Plain = dict[str, t.Any]
MORE_TIME = "rollback_timeout; in the role, netplan_vf_rollback_timeout"


def confirmed(answer: Plain, timeout: float, lost: bool) -> Plain | None:
    """Return the result, or None if the node is not done and must be polled again.

    answer: of the module in its phase `confirm`. timeout: seconds of the node's timer. lost: whether the connection broke
    when the change started, so that the node could not say whether its timer is longer, nor warn of what netplan takes down.
    """
    within = "in time" if lost else f"within {timeout:g} s"
    outcome, message = answer.get("outcome"), answer.get("message")
    if answer.get("failed"):
        return answer
    if outcome == "confirmed":
        warned = {"warnings": answer["warnings"]} if lost and answer.get("warnings") else {}
        return {"outcome": outcome, "changed": True, **warned}
    if outcome == "rolled_back":
        return _failure(
            f"No new connection confirmed the change {within}, so the node went back to its old configuration "
            "by itself. Either the change cut this node off from the controller: correct it. Or netplan "
            f"and the connection after it took longer than that: give them more time ({MORE_TIME}). "
            f"What was changed, and rolled back: {message}"
        )
    if outcome == "restarted":
        return _failure(
            "The node restarted before the change was confirmed (a power cut, a reset, or a manual reboot), and rolled back to its "
            f"old configuration. See `journalctl -b -1 -e` for why, then run again. What would have changed: {message}"
        )
    if outcome == "too_slow":
        return _failure(
            f"netplan did not finish {within}, so the node went back to its old configuration by "
            f"itself. Give it more time ({MORE_TIME}). What would have changed: {message}"
        )
    if outcome == "unknown" and lost:
        return _failure(f"The connection broke before the change began, and nothing was changed. {message}")
    if outcome == "unknown":
        return _failure(
            "The change was started, but the node has no record of it: it was rebooted in the meantime. "
            f"The old or the new configuration is active; run again. {message}"
        )
    return None


def silent(timeout: float, grace: float, error: str) -> Plain:
    """Return the result for a node that no longer answers. grace: seconds waited after the timer."""
    return _failure(
        f"The node has not answered since the change, not even {grace} s after its timer ({timeout} s) must have "
        f"expired and restored the old configuration. Look at its console. The last error: {error}"
    )


def _failure(message: str) -> Plain:
    return {"failed": True, "changed": False, "outcome": "rolled_back", "msg": message}
