# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask the API what there is of an instance, and say what runs."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError
from ansible_collections.dgxspark.cluster.plugins.modules.kube_running import ARGUMENTS
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
            objects = {kind: self._list(version, kind, asked, task_vars) for version, kind in KINDS}
            seen = running(asked["instance"], asked["namespace"], objects, asked["node_names"])
        except FabricError as exc:
            return {**result, "changed": False, "failed": True, "msg": f"kube_running: {exc}"}
        return {**result, "changed": False, **seen}

    def _list(self, version: str, kind: str, asked: dict[str, t.Any], task_vars: t.Any) -> list[dict[str, t.Any]]:
        arguments: dict[str, t.Any] = {"api_version": version, "kind": kind, "namespace": asked["namespace"]}
        arguments["label_selectors"] = selectors(asked["instance"])
        arguments |= {key: asked[key] for key in ("kubeconfig", "context") if asked[key]}
        try:
            said = self._execute_module(
                module_name="kubernetes.core.k8s_info", module_args=arguments, task_vars=task_vars
            )
        except AnsibleError as exc:  # the collection kubernetes.core is not there
            raise FabricError(f"the Kubernetes API cannot be asked: {exc}") from exc
        if said.get("failed"):
            why = " ".join(str(said.get("msg", said)).split())
            raise FabricError(f"the Kubernetes API did not answer: {why[:300]}")
        return list(said["resources"])
