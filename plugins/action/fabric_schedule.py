# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which pairs test which paths, from the evidence so far."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.fabric_schedule import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import hardware
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric import turns
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.settings import hardware_name
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.schedule import probes, rdma_rounds
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.values import EARLIER, evidence_of


class ActionModule(ControllerAction):
    """Decide."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return who sends what, and when."""
        plan, name = self.variable("dgxspark_plan"), hardware_name(self.variable("dgxspark_fabric", {}))
        seen = self.of_hosts("__verify_seen", EARLIER, only=plan["hosts"])
        evidence = evidence_of(plan, seen, hardware.thresholds(name, self.owner_dirs()))
        return {"probes": probes(evidence), "rounds": rdma_rounds(evidence, turns.this_run()["by"])}
