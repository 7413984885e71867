"""A case's plan, its ranks as pods in namespaces, each with a GPU of this machine, and what to ask them."""

from __future__ import annotations

import base64
import json
import pathlib
import shutil
import threading
import time
import typing as t
import urllib.request
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.serving import serving
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import read_model_files
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan
from ansible_collections.dgxspark.cluster.tests.engines.boxed import Boxed, until, wire
from ansible_collections.dgxspark.cluster.tests.engines.planned import lay_into_hub_cache
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import names
from ansible_collections.dgxspark.cluster.tests.unit.kube_inputs import PINNED, fabric

Plain = dict[str, t.Any]
KEY = "0123456789abcdef0123456789abcdef"  # of an API that only this machine's namespaces reach
SECRET: Plain = {
    "kind": "Secret",
    "metadata": {"name": "api-key"},
    "data": {"key": base64.b64encode(KEY.encode()).decode()},
}
HUB = "/var/lib/dgxspark/cache/huggingface"
PORT = 30000
LAYING = threading.Lock()  # groups that start together share their node's folder
FIRED = {"sglang": "The server is fired up and ready to roll", "vllm": "Application startup complete"}
# Beside the plan's own: which GPU the runtime would hand in, what NCCL and the seeds' engine say, and what keeps a machine that others
# share in order (no multicast over NVLink).
MORE = {
    "NCCL_DEBUG": "INFO",
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    # vLLM's page of its configuration; its FlashInfer is not carried to these machines, and sampling takes it without asking.
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_NO_USAGE_STATS": "1",
}


@dataclass(frozen=True)
class Case:
    """What to start. model: a folder below the models' folder; without weights they are dummies. transport: NCCL's, of two ranks.

    kubernetes: settings of the role k8s_dgx.
    """

    id: str
    model: str
    settings: Plain = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    parallel: Plain = field(default_factory=dict)
    transport: str = "socket"
    preflight: bool = True
    engine: tuple[str, str] = ("sglang", "0.5.12")
    drafter: str | None = None
    seconds: float = 300
    kubernetes: Plain = field(default_factory=dict)

    @property
    def dummy(self) -> bool:
        """Whether it has no weights and no words."""
        return not self.model.startswith("tiny")

    @property
    def nodes(self) -> int:
        """How many ranks, and GPUs, it needs."""
        return int(self.parallel.get("nodes", 1))


def profile(case: Case) -> Plain:
    """Return the case as a profile without facts: they come from the model's config.json."""
    own = {"nodes": case.nodes, "tp": case.parallel.get("tp", case.nodes), "pp": case.parallel.get("pp", 1)}
    dummy: Plain = {"load_format": "dummy", "skip_tokenizer_init": True} if case.dummy else {}
    transport = {"nccl_transport": case.transport} if case.nodes > 1 else {}
    return {
        "id": case.id, "title": case.id, "model": f"tests/{case.model}", "proven": "untested", "precision": {},
        "engine": {"name": case.engine[0], "version": case.engine[1]},
        "parallel": {**own, "ep": case.parallel.get("ep", 1)},
        "settings": {**dummy, **transport, **case.settings}, "environment": dict(case.environment),
        "source": [{"of": "settings", "from": "tests/engines", "verified": "measured"}],
    }  # fmt: skip


def planned(case: Case, files: Plain, overlays: t.Sequence[str] = (), free_gib: float = 78.0) -> Plain:
    """Return the case's launch plan on this many nodes. files: the model's own, as `model_files.read` returns them."""
    cluster = {"hosts": names(case.nodes), "nccl": {"attachment": "vf"}, "free_gib": free_gib}
    if case.nodes > 1:
        cluster["fabric"] = fabric(case.nodes)
    return launch_plan(profile(case), cluster, {"instance": {"name": "engines"}}, overlays, files=files)


class Group:
    """The ranks of a case. gpus: one for each; node: the folder of what pods keep on their node; more: environment; plan: another's."""

    def __init__(
        self,
        case: Case,
        models: pathlib.Path,
        folder: pathlib.Path,
        node: pathlib.Path,
        gpus: t.Sequence[int | str],
        more: t.Mapping[str, str],
        plan: Plain | None = None,
    ) -> None:
        self.case, self.folder = case, folder
        self.plan = plan or planned(case, read_model_files(str(models / case.model)))
        self.started = 0.0
        attached = {"attachment": "vf"} if case.nodes > 1 else {}
        settings = {**attached, "image": PINNED, "api_key_secret": "api-key", "hub_offline": True}
        settings |= case.kubernetes
        objects = serving(self.plan, fabric(case.nodes) if case.nodes > 1 else {}, settings)
        shown = [*objects["common"], SECRET]
        home = node / HUB.lstrip("/")
        for model in sorted(filter(None, {case.model, case.drafter})):
            with LAYING:
                if not (home / "hub" / f"models--tests--{model}").exists():
                    lay_into_hub_cache(models / model, f"tests/{model}", home)
        self.pods: list[Boxed] = []
        launch = next(
            each for each in objects["common"] if each["kind"] == "ConfigMap" and "supervisor.py" in each["data"]
        )
        for number, own in enumerate([*objects["head"], *objects["workers"]]):
            rank = json.loads(launch["data"][f"rank{number}.json"])
            if not case.preflight:
                launch["data"]["preflight.py"] = "raise SystemExit(0)\n"
            each = {**MORE, **more, "CUDA_VISIBLE_DEVICES": str(gpus[number])}
            self.pods.append(Boxed(own["spec"]["template"], shown, folder / f"rank{number}", node, rank, each))
        wire(self.pods)

    @property
    def head(self) -> Boxed:
        """The first rank."""
        return self.pods[0]

    def start(self) -> None:
        """Start all ranks."""
        self.started = time.monotonic()
        for pod in self.pods:
            pod.start()

    def ask(self, path: str, body: t.Any = None, timeout: float = 60) -> tuple[int, str]:
        """Ask the API, with its key; status 0 if there is no answer."""
        data = json.dumps(body).encode() if body is not None else None
        head = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        try:
            return self.head.fetch(urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data, head), timeout)
        except OSError as exc:
            return 0, str(exc)

    def probe(self, path: str = "/ready", rank: int = 0) -> bool:
        """Ask a supervisor."""
        port = self.pods[rank].container["ports"][0]["containerPort"]
        try:
            return self.pods[rank].fetch(urllib.request.Request(f"http://127.0.0.1:{port}{path}"), 10)[0] == 200
        except OSError:
            return False

    def wait(self, seconds: float, since: float | None = None) -> str:
        """Wait until it is ready; return `ready`, how a rank ended first, or `late`."""
        since = self.started if since is None else since

        def state() -> str | None:
            for number, pod in enumerate(self.pods):
                if found := pod.ended(since):
                    return f"rank {number} {found[1]}"
            # Without a tokenizer the supervisor's own question cannot be answered: there the engine's word has to do.
            return "ready" if (FIRED[self.case.engine[0]] in self.log(0) if self.case.dummy else self.probe()) else None

        return until(state, seconds, 0.25) or "late"

    def log(self, rank: int) -> str:
        """Return a rank's log."""
        place = self.pods[rank].log
        return place.read_text(encoding="utf-8", errors="replace") if place.is_file() else ""

    def close(self, keep: pathlib.Path | None = None) -> None:
        """Delete the pods; keep their logs."""
        for pod in self.pods:
            pod._over.set()
        for number, pod in enumerate(self.pods):
            pod.close()
            if keep and pod.log.is_file():
                shutil.copy(pod.log, keep / f"rank{number}.log")
