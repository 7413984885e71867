# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask the API what there is of an instance, and say what runs."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.kube_running import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, image
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.running import KINDS, running, selectors


class ActionModule(ActionBase):
    """Ask, judge."""

    _supports_check_mode = True
    _supports_diff = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return what runs; failed with the reason where nothing does or nobody answers."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        checked, _arguments = self.validate_argument_spec(ARGUMENTS)
        asked = checked.validated_parameters
        try:
            place, labels = ask.where(asked), selectors(asked["instance"])
            found = {kind[1]: ask.objects(self, kind, place, labels, task_vars) for kind in KINDS}
            found["ConfigMap"] = ask.objects(self, ("v1", "ConfigMap"), place, image.OURS, task_vars)
            seen = running(asked["instance"], asked["namespace"], found, asked["node_names"])
        except CollectionError as exc:
            return {**result, "changed": False, "failed": True, "msg": f"kube_running: {exc}"}
        return {**result, "changed": False, **seen}
