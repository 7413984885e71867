# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Get one artefact into the bundle's folder on the controller."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain, to_plain
from ansible_collections.dgxspark.cluster.plugins.modules.bundle_fetch import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import http_client
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle import get, registry
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle.wanted import Artefact
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain


class ActionModule(ControllerAction):
    """Fetch, report."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return whether it was fetched, and the artefact as it is now."""
        artefact = from_plain(Artefact, args["artefact"], "artefact")
        logins = registry.logins(args["logins"])
        mirrors = {str(key): str(value) for key, value in args["mirrors"].items()}
        try:
            with http_client.client() as client:
                way = get.Way(client, mirrors, logins, args["refresh"])
                had = get.have(args["folder"], artefact, way, check=self._task.check_mode)
        except OSError as exc:
            raise CollectionError(str(exc)) from exc
        there = {"artefact": to_plain(had.there)} if had.there else {}
        return {"changed": had.changed, "said": had.said, **there}
