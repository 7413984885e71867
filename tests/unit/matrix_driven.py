"""STAND-IN for a cluster, under the real driver of a matrix: a scripted server on loopback that the real bench asks.

Each of 36 cases has a script: it crashes at start, runs out of memory, hangs, writes garbage, dies halfway and comes back, or serves.
Logs are lines of `knowledge/signatures`. Run as a program it is one run of the matrix, which a test kills at any point:

    python matrix_driven.py FOLDER [--slow SECONDS]
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import sys
import time
import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import cases, driver, rows
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.cases import Case
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.driver import Step
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.journal import Journal

Plain = dict[str, t.Any]
SIGNATURES = knowledge.load("signatures")
# What a case does, by its number; the driver has to find the class.
SCRIPTS = (
    "good",
    "startup_crash",
    "out_of_memory_loading",
    "illegal_instruction",
    "garbage",
    "worker_restarted",
    "hang",
    "watchdog",
    "transport",
)
ENTRY = {
    "id": "scripted",
    "title": "Scripted",
    "profile": "gemma-4-31b-it",
    "base": {"variant": "plain"},
    "axes": {
        "chunked_prefill_size": [2048, 4096, 8192],
        "schedule_policy": ["lpm", "fcfs"],
        "page_size": [1, 16],
        "watchdog_timeout": [300, 600, 900],
    },
    "bench": {"workloads": ["chat"], "levels": [1, 4, 8]},
    "repeats": 2,
    "source": ["test"],
    "verified": "inferred",
}
LINES = {
    "startup_crash": "AssertionError: the head count does not divide",
    "out_of_memory_loading": SIGNATURES["sglang.pool-too-small"]["example"],
    "illegal_instruction": SIGNATURES["engine.illegal-instruction"]["example"],
    "watchdog": SIGNATURES["sglang.watchdog"]["example"],
    "worker_restarted": "the worker was started again",
    "hang": "decode batch, #running-req: 8",
    "transport": SIGNATURES["nccl.ib-no-device"]["example"],
}
BEFORE = "the model before"


def matrix() -> cases.Matrix:
    """Return the matrix of 36 cases."""
    knowledge.validate(cases.KIND, ENTRY, "scripted")
    return cases.matrix_of(ENTRY)


def planner(overrides: t.Mapping[str, t.Any]) -> Plain:
    """Plan without the rules: everything asked for runs."""
    settings = {"tp_size": 1, **overrides["settings"]}
    return {
        "profile": "gemma-4-31b-it",
        "model": "google/gemma-4-31B-it",
        "engine": {"name": "sglang", "version": "0.5.11", "image": "docker.io/example/engine:1"},
        "parallel": {"nodes": 4, "tp": 4, "pp": 1, "ep": 1},
        "settings": settings,
        "resolved": {key: {"value": value, "by": "asked"} for key, value in settings.items()},
        "added": {},
        "memory": {},
        "verdict": "unproven",
        "findings": [],
        "evidence": [],
    }


def script_of(case: Case) -> str:
    """Return what a case does: each script is used four times, so that the class does not follow from one axis."""
    names = [name for name, _labels, _choices in cases.combinations(matrix())]
    return SCRIPTS[names.index(case.name) % len(SCRIPTS)]


def level(n: int, verdict: str, ok: int, speed: float, **causes: int) -> Plain:
    """Return a level as the bench reports it."""
    figures: Plain = {
        "ok": ok,
        "failed": sum(causes.values()),
        "garbage": n - ok if verdict == "garbage" else 0,
        "peak_tokens_per_s": speed if ok else None,
        "wall_tokens_per_s": speed * 0.9 if ok else None,
        "ttft_median_s": 0.5 if ok else None,
        "slowest_tokens_per_s": speed / n if ok else None,
    }
    message = "" if verdict == "good" else f"{n} at once: {verdict}"
    return {"n": n, "verdict": verdict, "message": message, "figures": figures, "causes": causes, "signs": []}


def report(script: str, speed: float, run: int) -> Plain:
    """Return the bench's report of a scripted case."""
    good = [level(n, "good", n, round(speed * n**0.6 * (1 + 0.01 * run), 3)) for n in (1, 4, 8)]
    if script == "garbage":
        good[2] = level(8, "garbage", 0, 150.0)
    elif script == "worker_restarted":
        good[2] = level(8, "failed", 0, 0.0, **{"tokens.truncated": 8})
    elif script == "hang":
        good[1:] = [level(n, "failed", 0, 0.0, **{"tokens.hang": n}) for n in (4, 8)]
    elif script in ("illegal_instruction", "watchdog"):
        good[1:] = [level(n, "failed", 0, 0.0, **{"tokens.refused": n}) for n in (4, 8)]
    return {"workloads": [{"name": "chat", "levels": good}], "acceptance": None, "client_share": 0.01}


class Scripted:
    """The steps. What happens is written to `events`, outside the journal, for tests to count."""

    def __init__(self, folder: pathlib.Path, slow: float = 0.0, lost: str = "") -> None:
        self.folder, self.slow, self.lost = folder, slow, lost
        self.serving, self.kept = folder / "serving", folder / "before"
        if not self.serving.exists():
            self.serving.write_text(BEFORE)

    def _did(self, what: str) -> None:
        with (self.folder / "events").open("a") as file:
            file.write(f"{what}\n")
        time.sleep(self.slow)

    def save(self) -> Step:
        if not self.kept.exists():
            self.kept.write_text(self.serving.read_text())
        return Step(True)

    def switch(self, case: Case, folder: pathlib.Path) -> Step:
        self._did(f"switch {case.name}")
        if case.name == self.lost:
            return Step(False, "UNREACHABLE", lost=("spark3",))
        self.serving.write_text(case.id)
        if script_of(case) in ("startup_crash", "out_of_memory_loading"):
            return Step(False, "serve-default-rank2-0 on spark3: it ended with exit status 1 (Error).")
        return Step(True)

    def verify(self, case: Case, folder: pathlib.Path) -> Step:
        socket = script_of(case) == "transport"
        return Step(not socket, "NCCL uses Socket" if socket else "", data={"socket": socket})

    def bench(self, case: Case, folder: pathlib.Path, run: int) -> Step:
        self._did(f"bench {case.name} {run}")
        made = report(script_of(case), 10 + int(case.id[:2], 16) / 10, run)
        (folder / f"bench-{run}.json").write_text(json.dumps(made))
        return Step(script_of(case) == "good", data={"report": made})

    def collect(self, case: Case, folder: pathlib.Path) -> Step:
        script = script_of(case)
        text = "loading\n" + LINES.get(script, "all is well") + "\n"
        restarts = {"serve-default-rank2-0": int(script in ("worker_restarted", "startup_crash"))}
        platform = {"driver": "580.142", "kernel": "6.19.11", "nccl": "2.29.7"}
        return Step(True, data={"logs": {"serve-default-rank2-0": text}, "restarts": restarts, "platform": platform})

    def restore(self) -> Step:
        if self.kept.exists():
            self.serving.write_text(self.kept.read_text())
            self.kept.unlink()
            self._did("restore")
        return Step(True)


def run(
    folder: pathlib.Path, steps: driver.Steps | None = None, made: cases.Matrix | None = None, **bounds: t.Any
) -> Plain:
    """Run the matrix, or what is left of it."""
    made = made or matrix()
    planned = cases.planned(made, planner)
    ticks = itertools.count(1_790_000_000)
    with Journal(folder) as journal:
        journal.begin(driver.head(made, planned))

        def recorded() -> None:
            own = rows.rows_of(planned, journal.done, made.id)
            rows.write(folder / "overlay/evidence/mine.yml", "evidence", {"entries": own})

        recorded()
        limits = driver.Bounds(**{"clock": lambda: float(next(ticks)), **bounds})
        return driver.run(made, planned, journal, steps or Scripted(folder), limits, recorded=recorded)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--slow", type=float, default=0.0)
    asked = parser.parse_args()
    run(asked.folder, Scripted(asked.folder, asked.slow))
    sys.exit(0)
