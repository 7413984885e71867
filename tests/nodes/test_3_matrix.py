"""playbooks/matrix.yml on real nodes with real kubelets: three cases, what each left, and the model before serves again.

Each case is proven by verify's quick mode as shipped: on the nodes, and in the pods through the ranks' logs; the stand-in for Multus
makes the VFs' soft-RoCE devices follow them there. Not run here: traffic over RDMA; the engine is scripted, each case by its
environment, and its NCCL log is constructed (tests/unit/nccl_logs.py). The controller uses `kubectl port-forward`, since it cannot
reach the VMs' addresses.
"""

from __future__ import annotations

import gzip
import json
import pathlib
import socket
import subprocess
import threading
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import journal
from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.nodes import lane, real
from ansible_collections.dgxspark.cluster.tests.nodes.asked import NAMESPACE, PORT, condition
from ansible_collections.dgxspark.cluster.tests.nodes.cluster import NODES, ONE, Site
from ansible_collections.dgxspark.cluster.tests.unit import nccl_logs
from ansible_collections.dgxspark.cluster.tests.unit.matrix_served import SCRIPTED, WORKLOADS

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(lane.why_not()), reason=lane.why_not()),
    pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN),
    pytest.mark.skipif(
        bool(real.folder("DGXSPARK_REAL_MULTUS")),
        reason="not run: by the real Multus no soft-RoCE device follows a VF into a pod, which verify's quick mode rightly reports",
    ),
]
BY_CHUNK = {4096: "good", 2048: "garbage", 1024: "startup_crash"}  # what the engine's script has for a case
PROFILE = "scripted-matrix"
ENTRY = {
    "id": "three",
    "title": "Three cases on two nodes",
    "profile": PROFILE,
    "axes": {"chunked_prefill_size": list(BY_CHUNK)},
    "bench": {"workloads": ["short"], "levels": [1, 4]},
    "source": ["test"],
    "verified": "inferred",
}


class Forwarded:
    """The service's port on this machine. kubectl stays with one pod, so it is restarted for each new container of rank 0."""

    def __init__(self, site: Site) -> None:
        self.site, self.over, self.process = site, threading.Event(), None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.thread = threading.Thread(target=self._follow, daemon=True)

    def _follow(self) -> None:
        seen: t.Any = None
        while not self.over.wait(2):
            head = self.site.ranks().get(0)
            now = (
                head
                and condition(head)
                and [head["metadata"]["uid"], head["status"]["containerStatuses"][0]["containerID"]]
            )
            if now and (now != seen or self.process is None or self.process.poll() is not None):
                self._stop()
                kubectl = [str(self.site.lane.bin / "kubectl"), f"--kubeconfig={self.site.lane.kubeconfig}"]
                asked = ["port-forward", "-n", NAMESPACE, "service/serve-default", f"{self.port}:{PORT}"]
                self.process = subprocess.Popen(
                    [*kubectl, *asked], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                seen = now

    def _stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Forwarded:
        self.thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.over.set()
        self.thread.join()
        self._stop()


def overlay(place: pathlib.Path) -> str:
    """Make an owner's folder with short workloads, and with a script of the engine for each case."""
    by_chunk = {str(chunk): SCRIPTED[name] for chunk, name in BY_CHUNK.items()}
    script = json.dumps({"logs": nccl_logs.build(nccl_logs.Job(nodes=len(NODES))), "by_chunk": by_chunk})
    shared = yaml.safe_load((lane.ROOT / "tests/nodes/knowledge/model_profiles/nodes.yml").read_text("utf-8"))
    profile = {"id": PROFILE, "title": "A model whose engine goes wrong", "model": "dgxspark/scripted-three"}
    profile |= shared["common"] | {"environment": {"SCRIPTED": script}}
    # None of them hangs, and four streams at once through port-forward and an emulated kubelet take seconds to start.
    workloads = [{**workload, "timeout_s": 60} for workload in WORKLOADS]
    for kind, entries in (("workloads", workloads), ("model_profiles", [profile])):
        (place / kind).mkdir(parents=True)
        (place / kind / "nodes.yml").write_text(yaml.safe_dump({"entries": entries}), encoding="utf-8")
    return str(place)


def test_three_cases_by_the_shipped_playbook(site: Site) -> None:
    site.good(k8s_dgx_model_profile=ONE, with_addresses=True)
    before = {pod["metadata"]["name"] for pod in site.ranks().values()}
    plan = site.listed("statefulsets", "-n", NAMESPACE)[0]["metadata"]["annotations"]["dgxspark.cluster/plan"]
    (site.folder / "three.yml").write_text(yaml.safe_dump(ENTRY), encoding="utf-8")
    # Measured rows are written to the first one, so not into the checkout.
    folders = [overlay(site.folder / "of_matrix"), str(lane.ROOT / "tests" / "nodes" / "knowledge")]
    site.playbook = str(lane.ROOT / "playbooks" / "matrix.yml")
    with Forwarded(site) as way:
        try:
            code, said, _changed = site.run(
                dgxspark_matrix="three.yml",
                dgxspark_knowledge_dirs=folders,
                dgxspark_bench_url=f"http://127.0.0.1:{way.port}/v1",
                dgxspark_bench_rounds=1,
                # An emulated kubelet on a busy machine takes minutes to end a pod.
                k8s_dgx_stop_timeout=900,
            )
        finally:
            site.playbook = "nodes.yml"
    print(said)
    assert code == 0, said
    folder = site.folder / "matrix" / "three"
    done = {each["name"]: each for each in journal.outcomes(journal.read(folder / journal.NAME)).values()}
    assert {name: each["outcome"] for name, each in done.items()} == {
        str(chunk): outcome for chunk, outcome in BY_CHUNK.items()
    }, done
    crash, sound = done["1024"], done["4096"]
    # The pods' own logs are kept, read through real kubelets, and the line that shows the crash is in one of them.
    where = crash["where"].partition(":")[0]
    with gzip.open(folder / crash["evidence"] / "logs" / f"{where}.log.gz", "rt") as log:
        assert crash["line"] in log.read()
    assert list((folder / sound["evidence"] / "answers-1").iterdir())
    # Its proof covers the fabric and the pods: every VF has its GID, on the host or in a pod, and the ranks' logs show the transport.
    proof = json.loads((folder / sound["evidence"] / "verify.json").read_text(encoding="utf-8"))
    assert (proof["verdict"], proof["mode"]) == ("passed", "quick")
    steps = {step["id"]: step for step in proof["steps"]}
    assert {name for name, step in steps.items() if step["status"] == "pass"} >= {"link", "mtu", "arp", "gid", "pod"}
    places = [result["figures"]["place"] for result in steps["gid"]["results"]]
    assert sorted(places) == ["host"] * 4 + ["pod"] * 4
    # The model before serves again: its plan, ready, and it answers.
    assert site.ready() and {pod["metadata"]["name"] for pod in site.ranks().values()} == before
    assert site.listed("statefulsets", "-n", NAMESPACE)[0]["metadata"]["annotations"]["dgxspark.cluster/plan"] == plan
    site.works()
