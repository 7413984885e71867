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
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import apply, ask, gateway, group
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
        steps = [self._put(space, place), self._hidden(made["secret"], place, space), self._put(others, place, space)]
        return {
            "changed": any(each["changed"] for each in steps),
            "objects": [line for each in steps for line in each["objects"]],
            "diff": [part for each in steps for part in each["diff"]],
            "models": made["models"],
            "left_out": sorted(each.place for each in served if each.leaves),
        }

    def _put(self, objects: list[Plain], place: Plain, after: list[Plain] | None = None) -> Plain:
        said = ask.good(group.put(self, objects, place, self.task_vars))
        return apply.outcome(objects, said, (after or []) if self._task.check_mode else [])

    def _hidden(self, secret: Plain, place: Plain, after: list[Plain]) -> Plain:
        # A module in a process of its own would log its arguments.
        before = self._task.no_log, self._task.diff
        self._task.no_log, self._task.diff = True, False
        try:
            return {**self._put([secret], place, after), "diff": []}
        except CollectionError:
            said = "the API server did not take it. Its words are not shown, since they may contain a key."
            raise CollectionError(f"{apply.title(secret)}: {said}") from None
        finally:
            self._task.no_log, self._task.diff = before

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
