# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Poll a node's free memory until it suffices."""

from __future__ import annotations

import time

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.kube_memory import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.rollout import short_of_memory

INTERVAL_S = 5


class ActionModule(ControllerAction):
    """Read, judge, wait."""

    arguments = ARGUMENTS
    initial = {"lacking": []}  # noqa: RUF012 - never changed
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return what the node lacks, once it has enough or the timeout expires."""
        host, until = str(self.variable("inventory_hostname")), time.monotonic() + args["timeout"]
        lacking: list[str] = []
        while args["needed_gib"] is not None:
            try:
                told = {"device_ids": args["device_ids"]}
                read = ask.answer(self._execute_module, "dgxspark.cluster.roce_info", told, self.task_vars)
                lacking = short_of_memory(read["roce"], args["needed_gib"], host)
            except CollectionError as exc:
                return {"lacking": [f"{host}: its memory could not be measured: {exc}"]}
            if not lacking or time.monotonic() >= until:
                break
            time.sleep(INTERVAL_S)
        return {"lacking": lacking}
