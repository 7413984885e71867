"""A matrix on real ranks: the shipped driver, with steps that serve a case on this machine's GPUs and bench it.

Usage: matrix.py MODELS OUT SECONDS [KILL…]: the tiny model on two ranks (one, where there is one GPU), one case after the other. KILL is
`switch 3` or `bench 6`: there the whole run is killed, ranks and all, and started again. OUT gets the matrix's own folder, packed, and
what each run printed.

What is the collection's own here: the cases and their plans, the driver, its journal, the rendered pods, the benchmark, the classes, the
rows. What is not: the playbooks around them, and the fabric's proof; of that the transport is read from the ranks' logs.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
import typing as t
import zipfile

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.files import text_lines
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Reader
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import known
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.run import run as bench
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.wanted import BenchRequest
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import matrix_page
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import cases, driver, report, results, rows
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.cases import Case as MatrixCase
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.driver import Step
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.journal import Journal
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.steps import told_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import transport
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.verdict import Expected
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import read_model_files
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan
from ansible_collections.dgxspark.cluster.tests.engines.boxed import Boxed
from ansible_collections.dgxspark.cluster.tests.engines.cases import QUICK
from ansible_collections.dgxspark.cluster.tests.engines.drive import gpus
from ansible_collections.dgxspark.cluster.tests.engines.groups import KEY, PORT, Case, Group, Plain, profile
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import names
from ansible_collections.dgxspark.cluster.tests.unit.kube_inputs import PINNED, fabric

BENCH = str(pathlib.Path(__file__).resolve().parent / "bench")
NODES = min(2, gpus() or 2)
FREE_GIB = 110.0
ON = {"disable_cuda_graph": None, "disable_piecewise_cuda_graph": True, "cuda_graph_max_bs": 8}
DRAFT: Plain = {
    "speculative_algorithm": "STANDALONE", "speculative_draft_model_path": "tests/tiny", "speculative_eagle_topk": 1,
}  # fmt: skip
# What is asked, and how it shall end.
CASES: dict[str, tuple[str, Plain]] = {
    "eager": ("good", {}),
    "graphs": ("good", ON),
    "ngram": ("good", {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 8}),
    "draft-3": ("good", {**DRAFT, "speculative_num_steps": 3, "speculative_num_draft_tokens": 4}),
    "draft-5": ("good", {**DRAFT, "speculative_num_steps": 5, "speculative_num_draft_tokens": 6}),
    "draft-3-graphs": ("good", {**DRAFT, **ON, "speculative_num_steps": 3, "speculative_num_draft_tokens": 4}),
    # Layers of another width than the checkpoint's, and a cache that holds no request.
    "crash": ("startup_crash", {"json_model_override_args": {"hidden_size": 256}}),
    "crash-pool": ("startup_crash", {"max_total_tokens": 16}),
    # A layer's constant that is not the model's: it serves, fast and without sense.
    "garbage": ("garbage", {"json_model_override_args": {"rms_norm_eps": 1.0}}),
    "page-16": ("good", {"page_size": 16}),
    "chunk-512": ("good", {"chunked_prefill_size": 512}),
    "native": ("good", {"attention_backend": "torch_native"}),
}
BASE = Case(
    "tiny-two", "tiny", {**QUICK, "enable_metrics": True}, parallel={"nodes": NODES, "tp": NODES}, drafter="tiny"
)
ENTRY: Plain = {
    "id": "tiny-two",
    "title": f"The tiny model on {NODES} ranks",
    "profile": "tiny-two",
    "cases": {name: asked for name, (_end, asked) in CASES.items()},
    "bench": {"workloads": ["tiny-counting"], "levels": [1, 4, 8]},
    "source": ["tests/engines/matrix.py"],
    "verified": "measured",
}


class Forward:
    """A port of this machine that leads to the served group's, as a NodePort does."""

    def __init__(self) -> None:
        self.pod: Boxed | None = None
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}/v1"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _address = self.listening.accept()
            threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        with near:
            if self.pod is None:
                return
            with contextlib.suppress(OSError), self.pod.connect(PORT) as far:
                far.settimeout(None)
                back = threading.Thread(target=pump, args=(far, near), daemon=True)
                back.start()
                pump(near, far)
                back.join()


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Send on what comes, until there is no more."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


class OnRanks:
    """The driver's steps. state: where the next run sees what this one did, for whoever kills it."""

    def __init__(self, models: pathlib.Path, state: pathlib.Path, gpus: t.Sequence[int], patience_s: float) -> None:
        self.models, self.state, self.gpus, self.patience_s = models, state, gpus, patience_s
        self.node = pathlib.Path(os.environ.get("DGXSPARK_ENGINES_NODE", "/tmp/node"))
        self.more = json.loads(os.environ.get("DGXSPARK_ENGINES_ENV", "{}"))
        self.forward, self.group = Forward(), t.cast("Group | None", None)
        self.place = tempfile.TemporaryDirectory(prefix="pods-", ignore_cleanup_errors=True)

    def _did(self, what: str, name: str) -> None:
        with self.state.open("a", encoding="utf-8") as file:
            file.write(f"{time.time():.1f} {what} {name}\n")

    def save(self) -> Step:
        """Nothing served before."""
        return Step(True)

    def restore(self) -> Step:
        """Stop what serves."""
        self._stop()
        return Step(True)

    def _stop(self) -> None:
        self.forward.pod = None
        if self.group:
            self.group.close()
        self.group = None

    def switch(self, case: MatrixCase, folder: pathlib.Path) -> Step:
        """Serve the case's plan."""
        self._did("switch", case.name)
        self._stop()
        place = pathlib.Path(tempfile.mkdtemp(dir=self.place.name))
        self.group = Group(BASE, self.models, place, self.node, self.gpus, self.more, dict(case.plan))
        self.group.start()
        state = self.group.wait(self.patience_s)
        self._did(state, case.name)
        if state != "ready":
            return Step(False, f"{state}: {self.group.pods[0].last_word()}", timed_out=state == "late")
        self.forward.pod = self.group.head
        return Step(True)

    def _logs(self) -> dict[str, str]:
        assert self.group
        return {pod.name: self.group.log(number) for number, pod in enumerate(self.group.pods)}

    def verify(self, case: MatrixCase, folder: pathlib.Path) -> Step:
        """Compare the transport that the ranks' logs show with the plan's; one rank has none."""
        if NODES == 1:
            return Step(True)
        reader = Reader([])
        for name, text in self._logs().items():
            reader.read(name, text_lines(text))
        told = transport.report(reader.finish(), Expected(world_size=NODES))
        (folder / "transport.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
        refused = transport.refusal(told, "socket")
        return Step(refused is None, refused or "", data={"socket": False})

    def bench(self, case: MatrixCase, folder: pathlib.Path, run: int) -> Step:
        """Measure by the shipped benchmark."""
        self._did("bench", case.name)
        asked = BenchRequest(
            self.forward.url, workloads=tuple(ENTRY["bench"]["workloads"]), levels=tuple(ENTRY["bench"]["levels"]), rounds=2, api_key=KEY,
            keep_to=str(folder / f"answers-{run}"),
        )  # fmt: skip
        try:
            made = bench(asked, known.load([BENCH]), lambda _text: None)
        except CollectionError as exc:
            return Step(False, str(exc))
        (folder / f"bench-{run}.json").write_text(json.dumps(made), encoding="utf-8")
        good = all(level["verdict"] == "good" for work in made["workloads"] for level in work["levels"])
        return Step(good, "" if good else "not all levels are good", data={"report": made})

    def collect(self, case: MatrixCase, folder: pathlib.Path) -> Step:
        """Read the ranks' logs and restarts."""
        assert self.group
        logs = self._logs()
        (folder / "logs").mkdir()
        for name, text in logs.items():
            (folder / "logs" / f"{name}.log").write_text(text, encoding="utf-8")
        restarts = {pod.name: sum(what.startswith("ended") for _at, what in pod.events) for pod in self.group.pods}
        shown = self.group.ask("/server_info")[1] if self.forward.pod else ""
        (folder / "server_info.json").write_text(shown, encoding="utf-8")
        (folder / "metrics.txt").write_text(self.group.ask("/metrics")[1] if self.forward.pod else "", encoding="utf-8")
        told = told_of(logs, knowledge.load("metrics"))
        return Step(True, data={"logs": logs, "restarts": restarts, "platform": {}, **told})


def plan_of(models: pathlib.Path, overrides: t.Mapping[str, t.Any], overlays: t.Sequence[str] = ()) -> Plain:
    """Return the plan of a configuration."""
    cluster = {"hosts": names(NODES), "nccl": {"attachment": "vf"}, "free_gib": FREE_GIB}
    if NODES > 1:
        cluster["fabric"] = fabric(NODES)
    base = profile(BASE)
    base["engine"]["image"] = PINNED  # rows are told apart by it
    laid = {**overrides, "instance": {"name": "engines"}}
    return launch_plan(base, cluster, laid, overlays, files=read_model_files(str(models / BASE.model)))


def planned(models: pathlib.Path) -> tuple[cases.Matrix, list[MatrixCase]]:
    """Return the matrix, and its cases with their plans."""
    matrix = cases.matrix_of(ENTRY)
    return matrix, cases.planned(matrix, lambda overrides: plan_of(models, overrides))


def measure(models: pathlib.Path, out: pathlib.Path, seconds: float, gpus: t.Sequence[int]) -> Plain:
    """Run the matrix, or what is left of it."""
    matrix, found = planned(models)
    for case in found:
        if case.blocked:
            print(f"blocked: {case.name}: {case.blocked}", flush=True)
    folder = out / "matrix"
    ends = time.monotonic() + seconds
    with Journal(folder) as journal:
        journal.begin(driver.head(matrix, found))

        def recorded() -> None:
            own = rows.rows_of(found, journal.done, matrix.id)
            rows.write(out / "overlay/evidence/matrix-tiny-two.yml", "evidence", {"entries": own})
            made = results.of_journal(journal.entries)
            (folder / "matrix.html").write_text(matrix_page.page(made), encoding="utf-8")
            (folder / "matrix.md").write_text(report.markdown(made), encoding="utf-8")

        steps = OnRanks(models, out / "events.txt", gpus, 240)
        bounds = driver.Bounds(stopping=lambda: time.monotonic() > ends, say=lambda text: print(text, flush=True))
        return driver.run(matrix, found, journal, steps, bounds, recorded=recorded)


def looped(models: pathlib.Path, out: pathlib.Path) -> Plain:
    """Return, by case, its outcome, and how the next plan of the same configuration is judged by the rows."""
    with Journal(out / "matrix") as journal:
        ended = {entry["name"]: entry["outcome"] for entry in journal.done.values()}
    found = {}
    for case in planned(models)[1]:
        again = plan_of(models, case.overrides, [str(out / "overlay")])
        found[case.name] = {
            "outcome": ended.get(case.name),
            "before": case.plan["verdict"] if case.plan else "not planned",
            "after": again["verdict"],
            "why": [each["rule"] for each in again["findings"] if each["severity"] in ("block", "error")],
        }
    return found


def killing(models: str, out: pathlib.Path, seconds: float, kills: t.Sequence[str]) -> None:
    """Run it in processes of their own, each in a PID namespace, so that a kill takes the ranks, too."""
    ends, events, waiting = time.monotonic() + seconds, out / "events.txt", collections.deque(kills)
    alone = ["unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]
    while (left := ends - time.monotonic()) > 30:
        command = [*alone, sys.executable, "-m", __spec__.name, models, str(out), str(left - 15), "--once"]
        with subprocess.Popen(command) as process:
            while process.poll() is None:
                told = events.read_text(encoding="utf-8").split("\n") if events.exists() else []
                if waiting:
                    what, number = waiting[0].split()
                    if sum(line.split()[1:2] == [what] for line in told) >= int(number):
                        time.sleep(3.0 if what == "switch" else 0.4)
                        process.kill()
                        waiting.popleft()
                        print(f"killed at {what} {number}", flush=True)
                if time.monotonic() > ends + 20:
                    process.kill()
                time.sleep(0.1)
        if process.returncode >= 0:  # it ended by itself
            break


def main(models: str, out: str, seconds: str, *more: str) -> int:
    """Measure, with kills; pack what came of it."""
    place = pathlib.Path(out)
    place.mkdir(parents=True, exist_ok=True)
    if "--once" in more:
        print(json.dumps(measure(pathlib.Path(models), place, float(seconds), range(NODES))), flush=True)
        return 0
    killing(models, place, float(seconds), more)
    (place / "loop.json").write_text(json.dumps(looped(pathlib.Path(models), place), indent=1), encoding="utf-8")
    print((place / "loop.json").read_text(encoding="utf-8"))
    with zipfile.ZipFile(place / "matrix.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted((place / "matrix").rglob("*")) + sorted((place / "overlay").rglob("*")):
            if file.is_file():
                packed.write(file, file.relative_to(place))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
