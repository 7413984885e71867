"""The steps of a matrix, real but for Ansible and the cluster: the scripted engine as a process, and the bench that queries it.

Each of the 36 cases is served by tests/stand_ins/scripted_engine.py, which does what the case's script says; a stand-in for the
kubelet restarts it when it has ended, and keeps its log. What a rank logs before it fails is taken from `knowledge/signatures`
where an owner reported it, and otherwise is Python's own; the transport's is a real NCCL log.
"""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
import typing as t
import urllib.request

import yaml

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import known
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import run as bench
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.wanted import BenchRequest
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import steps
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.cases import Case
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.driver import Step
from ansible_collections.dgxspark.cluster.tests.unit import nccl_read
from ansible_collections.dgxspark.cluster.tests.unit.matrix_driven import LINES, SIGNATURES, Plain, script_of

ENGINE = pathlib.Path(__file__).resolve().parents[1] / "stand_ins" / "scripted_engine.py"
RANK = "serve-default-rank0-0"
TRANSPORT = nccl_read.real("hca-absent")
STACK = [
    "[2026-11-24 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py", line 2700, in run_scheduler_process',
    "    scheduler.event_loop_overlap()",
]
END = [SIGNATURES["sglang.child-failed"]["example"]]
# By the class that a case has to get. It goes wrong from two requests at once on: a single one is answered well.
SCRIPTED: dict[str, Plain] = {
    "good": {},
    "startup_crash": {"says": [*STACK, LINES["startup_crash"], *END], "exit": 1},
    "out_of_memory_loading": {"says": [*STACK, LINES["out_of_memory_loading"], *END], "exit": 1},
    "illegal_instruction": {"dies": 2, "last": [*STACK, LINES["illegal_instruction"], *END], "status": -9},
    "garbage": {"garbage": 2},
    "worker_restarted": {"dies": 2, "status": -9},
    "hang": {"hang": 2},
    "watchdog": {"dies": 2, "last": [LINES["watchdog"], *END], "status": -3},
    "transport": {"says": [line for log in TRANSPORT for line in log]},
}
# As the shipped ones, but two seconds without an answer are a hang.
COMMON = {"timeout_s": 2, "max_tokens": 150, "temperature": 0, "seed": 1, "verified": "inferred", "source": ["test"]}
GREEDY = {key: value for key, value in knowledge.load("workloads")["greedy"].items() if key not in ("origin", "id")}
WORKLOADS: list[Plain] = [
    {
        "id": "short",
        "title": "Short",
        "prompts": [{"ask": f"Tell me of the {thing}."} for thing in ("sea", "wind", "sun", "moon")],
        **COMMON,
    },
    {"id": "greedy", "replaces": "greedy", **GREEDY, **COMMON},
]


class Kubelet:
    """STAND-IN for the kubelet of one pod: restarts its container when it has ended. logs: output of the last two containers."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        self.restarts, self.starts = 0, 0
        self.lock = threading.RLock()
        threading.Thread(target=self._watch, daemon=True).start()

    def serve(self, script: Plain, more: t.Mapping[str, str]) -> str:
        """Start a container; return the URL at which it will answer."""
        self.stop()
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.command = [sys.executable, str(ENGINE), "--model-path", "m", "--port", str(port)]
        self.environment = {**os.environ, "SCRIPTED_LOAD_S": "0", "SCRIPTED": json.dumps(script), **more}
        with self.lock:
            self.restarts, self.starts = 0, 0
            self._start()
        return f"http://127.0.0.1:{port}/v1"

    def _start(self) -> None:
        self.starts += 1
        with self.log(self.starts).open("wb") as file:
            self.process = subprocess.Popen(
                self.command, env=self.environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )

    def log(self, number: int) -> pathlib.Path:
        return self.folder / f"container-{number}.log"

    def _watch(self) -> None:
        while True:
            time.sleep(0.05)
            with self.lock:
                if self.process is not None and self.process.poll() is not None:
                    self.restarts += 1
                    self._start()

    @property
    def logs(self) -> dict[str, str]:
        """The container's log, after that of the container before its restart, as `Playbooks.collect` returns them."""
        with self.lock:
            numbers = [n for n in (self.starts - 1, self.starts) if n > 0]
            names = {n: RANK if n == self.starts else f"{RANK}.previous" for n in numbers}
            return {names[n]: self.log(n).read_text(errors="replace") for n in numbers}

    def stop(self) -> None:
        with self.lock:
            process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()


class Served:
    """The steps. engine: the engine whose answer format is used."""

    def __init__(self, folder: pathlib.Path, engine: str = "sglang") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.engine, self.url = engine, ""
        self.kubelet = Kubelet(folder)
        self.overlay = folder / "owner"
        (self.overlay / "workloads").mkdir(parents=True)
        (self.overlay / "workloads" / "short.yml").write_text(yaml.safe_dump({"entries": WORKLOADS}), encoding="utf-8")

    def save(self) -> Step:
        return Step(True)

    def restore(self) -> Step:
        self.kubelet.stop()
        return Step(True)

    def switch(self, case: Case, folder: pathlib.Path) -> Step:
        """Wait as kube_wait does: until the API answers, or a restarted container has shown that it does not come up."""
        self.url = self.kubelet.serve({"token_s": 0.003, **SCRIPTED[script_of(case)]}, {"SCRIPTED_AS": self.engine})
        until = time.monotonic() + 20
        while time.monotonic() < until:
            if self.kubelet.restarts:
                return Step(False, f"{RANK} on spark1: it ended with exit status 1 (Error).")
            try:
                with urllib.request.urlopen(f"{self.url}/models", timeout=1):
                    return Step(True)
            except OSError:
                time.sleep(0.02)
        return Step(False, f"{RANK} is not ready after 20 s", timed_out=True)

    def verify(self, case: Case, folder: pathlib.Path) -> Step:
        """Judge what the rank's log says of its network, if anything, with the reader of NCCL logs."""
        lines = self.kubelet.logs[RANK].splitlines()
        if not any("NCCL INFO" in line for line in lines):
            return Step(True)
        found = nccl_read.judged([lines], None)
        socket_only = found["verdict"] == "socket"
        return Step(not socket_only, found["summary"] if socket_only else "", data={"socket": socket_only})

    def bench(self, case: Case, folder: pathlib.Path, run: int) -> Step:
        wanted = BenchRequest(
            self.url,
            workloads=("short",),
            levels=(1, 4),
            rounds=1,
            seconds=20.0,
            keep_to=str(folder / f"answers-{run}"),
        )
        report = bench.run(wanted, known.load([str(self.overlay)]), lambda _text: None)
        bad = [level["message"] for work in report["workloads"] for level in work["levels"] if level["message"]]
        return Step(not bad, " ".join(bad), data={"report": report})

    def collect(self, case: Case, folder: pathlib.Path) -> Step:
        time.sleep(0.2)  # until a container that has just ended is counted; `ranks.yml` runs seconds later
        ended = {"restartCount": self.kubelet.restarts, "state": {"running": {}}}
        pod = {"metadata": {"name": RANK}, "status": {"containerStatuses": [{"name": "rank", **ended}]}}
        return Step(True, data={"logs": self.kubelet.logs, "platform": {}} | steps.facts_of([pod]))
