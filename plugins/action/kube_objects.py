# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""List a cluster's objects of several kinds in one step."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.kube_objects import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import Plain


class ActionModule(ActionBase):
    """Ask kind by kind."""

    _supports_check_mode = True
    _supports_diff = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return the objects; failed with the reason where nobody answers."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        checked, _arguments = self.validate_argument_spec(ARGUMENTS)
        asked = checked.validated_parameters
        try:
            found = [self._list(asked, each, task_vars) for each in asked["kinds"]]
        except CollectionError as exc:
            return {**result, "changed": False, "failed": True, "msg": f"kube_objects: {exc}"}
        return {**result, "changed": False, "found": found, "objects": [each for kind in found for each in kind]}

    def _list(self, asked: Plain, each: Plain, task_vars: dict[str, t.Any] | None) -> list[Plain]:
        place = ask.where({**asked, "namespace": each["namespace"] or asked["namespace"]})
        labels = asked["label_selectors"] if each["label_selectors"] is None else each["label_selectors"]
        return ask.objects(self, (each["api_version"], each["kind"]), place, labels, task_vars)
