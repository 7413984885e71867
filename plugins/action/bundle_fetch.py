# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have one artefact in the bundle's folder, on the controller."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain, to_plain
from ansible_collections.dgxspark.cluster.plugins.modules.bundle_fetch import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import http_client
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle import get, registry
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle.wanted import Artefact


class ActionModule(ActionBase):
    """Check the arguments, fetch, report."""

    _supports_check_mode = True
    _supports_diff = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Return whether it was fetched, and what is there now."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        checked, _arguments = self.validate_argument_spec(ARGUMENTS)
        given = checked.validated_parameters
        try:
            artefact = from_plain(Artefact, given["artefact"], "artefact")
            logins = registry.logins(given["logins"])
            mirrors = {str(key): str(value) for key, value in given["mirrors"].items()}
            with http_client.client() as asked:
                way = get.Way(asked, mirrors, logins, given["refresh"])
                had = get.have(given["folder"], artefact, way, check=self._task.check_mode)
        except (CollectionError, OSError) as exc:
            return {**result, "changed": False, "failed": True, "msg": f"bundle_fetch: {exc}"}
        there = {"artefact": to_plain(had.there)} if had.there else {}
        return {**result, "changed": had.changed, "said": had.said, **there}
