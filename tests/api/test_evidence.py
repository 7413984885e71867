"""What verify reads from a cluster: real runs of kubernetes.core against the stand-in of an API server.

The pods are the stand-in's, and their logs constructed (tests/unit/nccl_logs.py): NO POD RUNS HERE.
"""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api
from ansible_collections.dgxspark.cluster.tests.unit import nccl_logs

Plain = dict[str, t.Any]
pytestmark = pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN)
OOM = "kernel: Out of memory: Killed process 4242 (python3) total-vm:1kB"


class Reader(harness.Site):
    """Four ranks, and a play that saves what verify would be given."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.cluster = kube_api.Cluster([f"spark{number}" for number in range(1, 5)])
        self.server = kube_api.serve(self.cluster, folder / "kubeconfig")
        super().__init__(folder, folder / "kubeconfig")

    def start(self) -> None:
        """Start a model's ranks behind a NodePort."""
        self.play()
        self.good(k8s_dgx_serving={"service_type": "NodePort"})
        for pod in self.cluster.pods().values():
            pod["status"]["hostIP"] = f"192.0.2.{pod['metadata']['labels']['dgxspark.cluster/rank']}"
        self.service()["spec"]["ports"][0]["nodePort"] = 30123

    def service(self) -> Plain:
        return t.cast(Plain, self.cluster.objects["v1", "services", "dgx-serving", "serve-default"])

    def log(self, logs: t.Sequence[t.Sequence[str]]) -> None:
        self.cluster.logs = {f"serve-default-rank{n}-0": "\n".join(lines) for n, lines in enumerate(logs)}

    def read(self, **variables: t.Any) -> Plain:
        """Run the tasks with which verify and bench read the cluster; return what they set."""
        self.include("evidence")
        file = self.folder / "evidence.json"
        plays = yaml.safe_load((self.folder / "play.yml").read_text(encoding="utf-8"))
        content = {"content": "{{ k8s_dgx_evidence | to_json }}", "dest": str(file), "mode": "0600"}
        keep = {"name": "Keep it", "ansible.builtin.copy": content, "run_once": True, "check_mode": False}
        plays[0]["tasks"].append({**keep, "delegate_to": "localhost"})
        (self.folder / "play.yml").write_text(yaml.safe_dump(plays, sort_keys=False), encoding="utf-8")
        self.good(**variables)
        return t.cast(Plain, json.loads(file.read_text(encoding="utf-8")))


@pytest.fixture
def site(tmp_path: pathlib.Path) -> t.Iterator[Reader]:
    made = Reader(tmp_path)
    yield made
    made.server.shutdown()


@pytest.mark.more
def test_the_ranks_logs_are_read_and_judged_and_the_model_is_found(site: Reader) -> None:
    site.start()
    logs = nccl_logs.build(nccl_logs.Job(nodes=4))
    site.log([*logs[:3], [*logs[3], OOM]])
    writes = len(site.cluster.writes)
    found = site.read()
    assert found["pod"]["hosts"] == ["spark1", "spark2", "spark3", "spark4"]
    assert found["pod"]["transport"]["verdict"] == "ib", found["pod"]["transport"]["gaps"]
    assert "readings" not in found["pod"]["transport"]
    hits = {reading["name"]: [hit["id"] for hit in reading["hits"]] for reading in found["pod"]["readings"]}
    assert hits["pod serve-default-rank3-0"] == ["kernel.oom-kill"]
    (group,) = found["tokens"]["groups"]
    assert group["url"] == "http://192.0.2.0:30123/v1"
    assert len(site.cluster.writes) == writes
    # Without one rank's log the transport is unknown; behind a ClusterIP service the model is not asked.
    site.service()["spec"]["type"] = "ClusterIP"
    del site.service()["spec"]["ports"][0]["nodePort"]
    site.log(logs[:3])
    found = site.read()
    assert found["pod"]["transport"]["verdict"] == "unknown"
    assert "ClusterIP" in found["tokens"]["reason"]
    # Logs that say nothing about NCCL are given as the reason.
    site.log([["Loading weights"]] * 4)
    found = site.read()
    assert "no NCCL output" in found["pod"]["reason"]


@pytest.mark.long
def test_where_nothing_is_served_or_nobody_answers_there_is_a_reason(site: Reader, tmp_path: pathlib.Path) -> None:
    found = site.read()
    assert "no instance 'default' is served in namespace dgx-serving" in found["pod"]["reason"]
    assert found["tokens"] == found["pod"]
    found = site.read(k8s_dgx_kubeconfig=str(tmp_path / "nowhere"))
    assert "the Kubernetes API did not answer" in found["pod"]["reason"]
