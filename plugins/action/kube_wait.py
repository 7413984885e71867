# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Look at a group of ranks until it is as it shall be, or until it is known why it will not be."""

from __future__ import annotations

import time
import typing as t

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import to_plain
from ansible_collections.dgxspark.cluster.plugins.modules.kube_wait import ARGUMENTS, REQUIRED_IF
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import status

display = Display()


class ActionModule(ActionBase):
    """Ask, judge, wait."""

    _supports_check_mode = True
    _supports_diff = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the group's state; failed with its cause where it is stuck or the time is over."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        checked, _arguments = self.validate_argument_spec(ARGUMENTS, required_if=REQUIRED_IF)
        asked = checked.validated_parameters
        start = time.monotonic()
        said = ""
        while True:
            pods = self._list("Pod", asked, task_vars)
            if asked["state"] == "gone":
                seen = status.leaving(pods)
            else:
                seen = status.group(pods, [], asked["ranks"], asked["plan"])
                if seen["state"] != "ready" and pods:
                    events = self._list("Event", asked, task_vars)
                    seen = status.group(pods, events, asked["ranks"], asked["plan"])
            seconds = round(time.monotonic() - start, 1)
            causes = " ".join(map(str, seen["findings"]))
            result |= {
                "changed": False,
                "ready": seen["ready"],
                "findings": to_plain(seen["findings"]),
                "seconds": seconds,
            }
            if seen["state"] == "ready" or self._task.check_mode:
                return result
            if seen["state"] == "stuck":
                return {**result, "failed": True, "msg": causes}
            if seconds >= asked["timeout"]:
                what = "gone" if asked["state"] == "gone" else f"ready ({len(seen['ready'])} of {asked['ranks']} are)"
                why = causes or "No cause is known: see the pods' logs and events."
                return {
                    **result,
                    "failed": True,
                    "msg": f"{asked['instance']} is not {what} after {seconds:.0f} s. {why}",
                }
            if causes != said:
                said = causes
                display.display(f"kube_wait: {causes or 'going on'}")
            time.sleep(asked["interval"])

    def _list(self, kind: str, asked: dict[str, t.Any], task_vars: dict[str, t.Any] | None) -> list[dict[str, t.Any]]:
        arguments: dict[str, t.Any] = {"api_version": "v1", "kind": kind, "namespace": asked["namespace"]}
        if kind == "Pod":
            arguments["label_selectors"] = [f"app.kubernetes.io/instance={asked['instance']}"]
        arguments |= {key: asked[key] for key in ("kubeconfig", "context") if asked[key]}
        said = self._execute_module(module_name="kubernetes.core.k8s_info", module_args=arguments, task_vars=task_vars)
        if said.get("failed"):
            raise AnsibleActionFail(f"kube_wait: {said.get('msg', said)}")
        return list(said["resources"])
