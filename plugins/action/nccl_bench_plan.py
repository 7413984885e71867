# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the NCCL benchmark's ranks from the role's variables and the hosts' facts."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.nccl_bench_plan import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import bench


class ActionModule(ControllerAction):
    """Gather, decide."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the plan of the ranks."""
        chosen = bench.choices_of(self.variable, self.owner_dirs())
        ranks = {host: str(self.of_host(host, "ansible_host", host)) for host in args["hosts"]}
        serving = any(bench.serves(self.of_host(host, "dgxspark_roce")) for host in ranks)
        return bench.plan(chosen, ranks, serving, str(self.variable("inventory_hostname")))
