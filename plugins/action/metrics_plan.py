# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the files of the role spark_metrics from the fabric plan."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.modules.metrics_plan import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import metrics
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain


class ActionModule(ControllerAction):
    """Decide."""

    arguments = ARGUMENTS

    def act(self, asked: Plain) -> Plain:
        """Return the files and units."""
        hosts, host = (self.variable("dgxspark_plan") or {}).get("hosts", {}), self.variable("inventory_hostname")
        if host not in hosts:
            raise CollectionError(f"{host} is not in the fabric's plan (dgxspark_plan). Plan the fabric first.")
        chosen = {key: asked[key] for key in ("gid_index", "floor_mib", "report")}
        return metrics.plan(
            hosts[host], asked["profile"], asked["textfile"], asked["interval_s"], **chosen, dirs=self.owner_dirs()
        )
