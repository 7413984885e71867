# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Apply the page before the gateway. Keys and the password are in no result, diff or log."""

from __future__ import annotations

import base64
import contextlib
import secrets

from ansible_collections.dgxspark.cluster.plugins.modules.kube_webui import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, group, webui
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import MANAGER, NAME_LABEL


class ActionModule(ControllerAction):
    """Keep what signs the sessions, apply the rest."""

    arguments = ARGUMENTS
    _supports_diff = True
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return what changed, object by object."""
        place = ask.where({**args, "namespace": args["webui"].get("namespace")})
        session = self._session(place) or secrets.token_hex(32)
        keys = webui.Keys(args["gateway_key"], args["password"], session, args["tls_certificate"], args["tls_key"])
        made = webui.webui(args["webui"], keys)
        return group.together(
            [
                group.put_secret(self, made["secret"], place, self.task_vars),
                group.put_all(self, made["objects"], place, self.task_vars),
            ]
        )

    def _session(self, place: Plain) -> str:
        """Return the key that an earlier run made; "" before the first."""
        labels = [f"app.kubernetes.io/managed-by={MANAGER}", f"{NAME_LABEL}={webui.NAME}"]
        for each in ask.objects(self, ("v1", "Secret"), place, labels, self.task_vars):
            with contextlib.suppress(KeyError, TypeError, ValueError):
                return base64.b64decode(each["data"][webui.SESSION], validate=True).decode("ascii")
        return ""
