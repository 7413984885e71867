# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the registered results of the NCCL benchmark's ranks, and return the outcome."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.plugins.modules.nccl_measured import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import measured


class ActionModule(ControllerAction):
    """Gather, judge."""

    arguments = ARGUMENTS

    def act(self, args: Plain) -> Plain:
        """Return the outcome for verify, or the reason why nothing is or was measured."""
        ranks = {host: self._rank(host, args) for host in args["hosts"]}
        if not args["ended"]:
            return measured.measured(ranks)
        dirs = self.owner_dirs()
        made = measured.measured(ranks, measured.carried(ranks, args["expect"], dirs), dirs)
        return {**made, "counters": {host: self._counters(host) for host in ranks}}

    def _rank(self, host: str, args: Plain) -> Plain:
        ready = {"check": self._seen(host, "check"), "fault": self.of_host(host, "__nccl_bench_fault", "")}
        if not args["ended"]:
            return ready
        if args["pods"] is not None:
            return ready | measured.of_pod(args["pods"], host)
        return ready | measured.of_process(self._seen(host, "started"), self._seen(host, "done"))

    def _counters(self, host: str) -> Plain:
        return {when: self._seen(host, when).get("counters", []) for when in ("before", "after")}

    def _seen(self, host: str, name: str) -> Plain:
        """Return a result of the role nccl, empty if the role did not get that far."""
        return dict(self.of_host(host, f"__nccl_bench_{name}") or {})
