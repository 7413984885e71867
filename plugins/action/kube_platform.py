# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Render what a cluster needs as objects, with the fabric plan and the owner's folders."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.kube_platform import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import beside
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.platform import platform


class ActionModule(ControllerAction):
    """Gather, render."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the parts, and which of them must be present, absent or used as they are; applies nothing."""
        fabric = self.variable("dgxspark_plan", {}).get("hosts", {})
        choices, dirs = dict(args["kubernetes"]), self.owner_dirs()
        found = beside.find(fabric, choices, args["there"], dirs)
        if found.refused:
            return {"failed": True, "msg": beside.refusal(found)}
        more = beside.extra(found)
        choices |= {**more, "parts": {**(choices.get("parts") or {}), **more["parts"]}}
        parts = platform(fabric, choices, dirs, args["there"])
        there = [
            made for part in parts.values() if part["state"] in ("present", "labelled") for made in part["objects"]
        ]
        absent = [name for name, part in parts.items() if part["state"] == "absent"]
        return {"parts": parts, "present": there, "absent": absent, "used": list(found.used.values())}
