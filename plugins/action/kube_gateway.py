# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what is served, and apply the gateway that offers it. Keys are read from the cluster, and are in no result, diff or log."""

from __future__ import annotations

import base64
import binascii
import time

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.kube_gateway import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.known_bad import load_known_bad
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, gateway, group
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.instances import SELECTORS


class ActionModule(ControllerAction):
    """Read, apply."""

    arguments = ARGUMENTS
    _supports_diff = True
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return what changed, object by object, and the names that the gateway offers."""
        place = ask.where({**args, "namespace": None})
        there = gateway.backends(ask.objects(self, ("v1", "Service"), place, SELECTORS, self.task_vars))
        served = gateway.spared(there, args["without"])
        of = {each.place: self._key(each, place) for each in served if each.key}
        keys = gateway.Keys(args["api_key"], of, args["tls_certificate"], args["tls_key"])
        versions = load_known_bad(self.owner_dirs())
        made = gateway.gateway(args["gateway"], served, keys, args["handler"], versions, time.time())
        space, others = made["objects"][:1], made["objects"][1:]
        return {
            **group.together(
                [
                    group.put_all(self, space, place, self.task_vars),
                    group.put_secret(self, made["secret"], place, self.task_vars, space),
                    group.put_all(self, others, place, self.task_vars, space),
                ]
            ),
            "models": made["models"],
            "left_out": sorted(each.place for each in served if each.leaves),
        }

    def _key(self, backend: gateway.Backend, place: Plain) -> str:
        labels = [f"app.kubernetes.io/instance={backend.service.removeprefix('serve-')}"]
        there = {**place, "namespace": backend.namespace}
        for each in ask.objects(self, ("v1", "Secret"), there, labels, self.task_vars):
            if each["metadata"]["name"] == backend.key:
                try:
                    return base64.b64decode(each["data"]["key"], validate=True).decode("ascii")
                except (KeyError, TypeError, ValueError, binascii.Error):
                    break
        raise CollectionError(
            f"Secret {backend.namespace}/{backend.key}: no API key in it. Serve {backend.service} again."
        ) from None
