# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Poll what nodes offer until it is complete, and restart device plugins that looked for devices too early."""

from __future__ import annotations

import time

from ansible_collections.dgxspark.cluster.plugins.modules.kube_devices import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import ask, offered
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import MANAGED_BY_LABEL, MANAGER, PART
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.terminal import say

OURS = f"{MANAGED_BY_LABEL}={MANAGER}"
INTERVAL_S = 2


class ActionModule(ControllerAction):
    """Ask, judge, restart, wait."""

    arguments = ARGUMENTS
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return what nodes lack; failed with the reasons if they still lack it at the timeout."""
        start, names = time.monotonic(), self.variable("k8s_platform_node_names", {})
        play = {host: names.get(host, host) for host in self.variable("ansible_play_hosts_all", [])}
        hosts = play if args["hosts"] is None else args["hosts"]
        facts = {host: read for host in hosts if (read := self.of_host(host, "dgxspark_roce"))}
        watch = offered.Watch(args["patience"])
        while True:
            found = offered.offered(self._there(args), hosts, args["ranks"], facts)
            now = time.monotonic()
            for node, pod in watch.due(found, now).items() if not self._task.check_mode else ():
                say(f"kube_devices: {node}: the SR-IOV device plugin starts again ({pod})")
                gone = {"state": "absent", "api_version": "v1", "kind": "Pod", "name": pod, "namespace": "kube-system"}
                ask.done(self, {**ask.where(args), **gone}, self.task_vars)
            result = {"changed": bool(watch.restarted), "lacking": found["lacking"], "restarted": watch.restarted}
            if not found["lacking"] or self._task.check_mode:
                return result
            if now - start >= args["timeout"] or watch.over(found, now):
                return {**result, "failed": True, "msg": " ".join(found["lacking"])}
            time.sleep(INTERVAL_S)

    def _there(self, args: Plain) -> list[Plain]:
        place, part = ask.where(args), [OURS, f"{PART}=sriov_device_plugin"]
        system = {**place, "namespace": "kube-system"}
        nodes = ask.objects(self, ("v1", "Node"), place, [], self.task_vars)
        pods = ask.objects(self, ("v1", "Pod"), system, part, self.task_vars)
        return nodes + pods + ask.objects(self, ("v1", "ConfigMap"), system, part, self.task_vars)
