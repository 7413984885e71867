# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What actions do with a group of ranks in the cluster: apply its objects, and wait for its pods to reach a state."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import apply, ask, status
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import MANAGER, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.terminal import Progress

GONE_S = 60  # for objects that are being deleted


def put(action: ask.Action, objects: t.Sequence[Plain], more: Plain, task_vars: t.Any) -> Plain:
    """Apply the objects with server-side apply, and retry while any is being deleted; return kubernetes.core's answer.

    more: where the cluster is (see `ask.where`), and further options of kubernetes.core.k8s. Raises CollectionError if one is
    still being deleted after GONE_S.
    """
    arguments = {
        "resource_definition": list(objects),
        "apply": True,
        "server_side_apply": {"field_manager": MANAGER, "force_conflicts": True},
        # An object that check mode cannot judge must not hide the others.
        "continue_on_error": action._task.check_mode,
        **more,
    }
    until = time.monotonic() + GONE_S
    while True:
        said = ask.k8s(action, arguments, task_vars)
        # The server accepts a change to an object that is being deleted, and deletes it with the object a moment later.
        leaving = [] if action._task.check_mode else apply.leaving(objects, said)
        if not leaving:
            return said
        if time.monotonic() > until:
            still = f"{', '.join(leaving)}: being deleted, and still there after {GONE_S} s. See its finalizers."
            raise CollectionError(still)
        time.sleep(2)


def put_all(
    action: ask.Action, objects: t.Sequence[Plain], place: Plain, task_vars: t.Any, after: t.Sequence[Plain] = ()
) -> Plain:
    """Apply the objects; return `changed`, `objects` and `diff`. after: what earlier steps would create in check mode."""
    said = ask.good(put(action, objects, place, task_vars))
    return apply.outcome(objects, said, after if action._task.check_mode else ())


def put_secret(
    action: ask.Action, secret: Plain, place: Plain, task_vars: t.Any, after: t.Sequence[Plain] = ()
) -> Plain:
    """As `put_all`, without a diff, a log entry or the API server's words about it."""
    # A module in a process of its own would log its arguments.
    before = action._task.no_log, action._task.diff
    action._task.no_log, action._task.diff = True, False
    try:
        return {**put_all(action, [secret], place, task_vars, after), "diff": []}
    except CollectionError:
        said = "the API server did not take it. Its words are not shown, since they may contain a key."
        raise CollectionError(f"{apply.title(secret)}: {said}") from None
    finally:
        action._task.no_log, action._task.diff = before


def together(steps: t.Sequence[Plain]) -> Plain:
    """Return what several of these did as one result."""
    return {
        "changed": any(each["changed"] for each in steps),
        "objects": [line for each in steps for line in each["objects"]],
        "diff": [part for each in steps for part in each["diff"]],
    }


def wait(action: ask.Action, args: Plain, task_vars: t.Any) -> Plain:
    """Poll until the group reaches the state; return what was seen, failed with the cause if it cannot get there.

    args: `namespace` and `instance`; `state` (ready, ended, gone), and except for gone `plan` and `ranks`; `timeout` and `interval`
    in seconds; where the cluster is. Check mode polls once.
    """
    start, progress = time.monotonic(), Progress(pause=0.0)
    before: status.Before | None = None
    while True:
        seen, before = _look(action, args, before, task_vars)
        seconds = round(time.monotonic() - start, 1)
        causes = " ".join(map(str, seen["findings"]))
        result = {"ready": seen["ready"], "findings": to_plain(seen["findings"]), "seconds": seconds}
        result |= {key: seen[key] for key in ("codes",) if key in seen}
        if seen["state"] == "ready" or action._task.check_mode:
            return result
        if seen["state"] == "stuck":
            return {**result, "failed": True, "msg": causes}
        if seconds >= args["timeout"]:
            # Old ranks that stay say nothing of the new ones, which have not been started.
            mark = "not_gone" if args["state"] == "gone" else "timed_out"
            return {**result, "failed": True, mark: True, "msg": status.late(args, seen, seconds)}
        progress.tell(f"waiting for {args['instance']}: {causes or 'in progress'}")
        time.sleep(args["interval"])


def _look(
    action: ask.Action, args: Plain, before: status.Before | None, task_vars: t.Any
) -> tuple[Plain, status.Before]:
    """Return the group's current state, and its state at the first look."""
    pods = ask.of_instance(action, args, [("v1", "Pod")], task_vars)
    events: list[Plain] = []
    sets: list[Plain] | None = None
    # Missing pods: look for their owners. (Check mode applied nothing; pods that run to an end have no owner.)
    least = {"gone": 1, "ended": 0}[args["state"]] if args["state"] != "ready" else int(args["ranks"])
    if len(pods) < least and not action._task.check_mode:
        sets = ask.of_instance(action, args, [("apps/v1", "StatefulSet")], task_vars)
    if (pods or sets) and status.judge(args, pods, events, before, sets)["state"] != "ready":
        events = ask.objects(action, ("v1", "Event"), ask.where(args), [], task_vars)
    before = before or status.first_look(pods, events, sets or ())
    return status.judge(args, pods, events, before, sets), before
