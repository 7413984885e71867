# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmark a served model from a pod of its cluster: creates the pod, waits for it, reads its log, and removes it."""

from __future__ import annotations

import functools
import secrets

from ansible_collections.dgxspark.cluster.plugins.module_utils import bench
from ansible_collections.dgxspark.cluster.plugins.modules.bench_pod import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import known, report
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.run import works
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.wanted import BenchRequest
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.controller_action import ControllerAction, Plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import bench_pod
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.run_once import Job, Runner
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.terminal import say


class ActionModule(ControllerAction):
    """Create the pod, wait, read, report."""

    arguments = ARGUMENTS
    _requires_connection = True

    def act(self, args: Plain) -> Plain:
        """Return the report; failed if a level is failed or garbage. Check mode creates no pod."""
        served = bench_pod.Served(args["instance"], args["image"], args["secret"])
        given: Plain = {
            name: tuple(args[name]) if isinstance(args[name], list) else args[name] for name in bench.ARGUMENTS
        }
        wanted = BenchRequest(args["url"], key_file=bench_pod.key_file(served), place="pod", **given)
        what = known.load(args["knowledge_dirs"])
        works(wanted, what)  # fails here if a workload is unknown, before a pod asks for it
        document, run = bench_pod.program_input(wanted, what), secrets.token_hex(4)
        needs, pod = bench_pod.objects(served, document, args["host"], args["kubernetes"], args["timeout"], run)
        if self._task.check_mode:
            return {"skipped": True, "msg": "Check mode creates no pod and sends no requests."}
        log = self._ran(args, needs, pod)
        return report.result(bench_pod.report(log, f"{args['image']} on {args['host']}"))

    def _ran(self, args: Plain, needs: list[Plain], pod: Plain) -> str:
        """Return the pod's log. Removes leftovers of killed runs first."""
        runner = Runner(self, args, pod["metadata"]["namespace"], self.task_vars)
        selector, name, self._told = bench_pod.selector(args["instance"]), pod["metadata"]["name"], 0
        there = runner.listed("Pod", selector)
        bench_pod.alone(there)
        there += runner.listed("ConfigMap", selector)
        runner.remove(sorted({each["metadata"]["name"] for each in there}))
        look = functools.partial(bench_pod.alone, own=name)
        bound = "dgxspark_bench_timeout"
        _digest, log = runner.run(Job(needs, pod, args["host"], args["timeout"], selector, bound, look, self._hear))
        self._hear(log)
        return log

    def _hear(self, log: str) -> None:
        for line in bench_pod.progress(log, self._told):
            say(line)
            self._told += 1
