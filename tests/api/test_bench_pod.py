"""bench.yml with dgxspark_bench_from=pod as an owner runs it, against the stand-in of a cluster.

NO IMAGE RUNS HERE: the pod's own program runs for real, as a process with the files and the key that the pod mounts, against a
scripted server at the Service's address.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import tempfile
import threading
import time
import typing as t

import jsonschema
import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.bench_pod import BENCH, SCHEMA
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import MANAGER
from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api
from ansible_collections.dgxspark.cluster.tests.support.pod_programs import SPACE, Cluster, Plain
from ansible_collections.dgxspark.cluster.tests.unit import leaks
from ansible_collections.dgxspark.cluster.tests.unit.chat_server import ManyServer, sse
from ansible_collections.dgxspark.cluster.tests.unit.sound_server import sound

pytestmark = pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN)
KEY = "sk-" + "7hQw2" * 8
POD = {"dgxspark_bench_from": "pod", "dgxspark_report_file": "out/b.json"}
SHORT = {**POD, "dgxspark_bench_levels": [1, 2], "dgxspark_bench_rounds": 1}


class Owner(harness.Site):
    """Four Sparks that serve a model whose API asks for a key."""

    def __init__(self, folder: pathlib.Path, server: ManyServer) -> None:
        self.cluster: Cluster = Cluster([f"spark{number}" for number in range(1, 5)], folder / "pods")
        self.api = kube_api.serve(self.cluster, folder / "kubeconfig")
        super().__init__(folder, folder / "kubeconfig")
        port = int(server.url.rsplit(":", 1)[1].partition("/")[0])
        self.good(k8s_dgx_api_key=KEY, k8s_dgx_serving={"service_port": port})
        self.cluster.objects["v1", "services", SPACE, "serve-default"]["spec"]["clusterIP"] = "127.0.0.1"
        self.playbook = str(harness.ROOT / "playbooks" / "bench.yml")
        self.before = set(self.cluster.objects)

    def left(self) -> list[str]:
        """Return the names of the objects that were not there when only the model was served."""
        return [key[3] for key in self.cluster.objects if key not in self.before]

    def report(self) -> Plain:
        report: Plain = json.loads((self.folder / "out/b.json").read_text(encoding="utf-8"))
        jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text("utf-8"))).validate(report)
        return report

    def says(self, *options: str, **variables: t.Any) -> str:
        code, said, _changed = self.run(*options, **variables)
        assert code != 0, said
        return " ".join(said.split())

    def another(self, phase: str) -> str:
        """Create another run's pod and ConfigMap; return their name."""
        name = "bench-default-0ther"
        own = {"name": name, "namespace": SPACE, "labels": {BENCH: "default", "app.kubernetes.io/managed-by": MANAGER}}
        self.cluster.put(("v1", "configmaps", SPACE, name), {"metadata": dict(own), "data": {}})
        status = {"phase": phase, "containerStatuses": []}
        self.cluster.put(("v1", "pods", SPACE, name), {"metadata": dict(own), "spec": {}, "status": status})
        return name


@pytest.fixture(scope="module")
def server() -> t.Iterator[ManyServer]:
    with ManyServer(answering=sound) as made:
        yield made


@pytest.fixture(scope="module")
def served(server: ManyServer, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Owner]:
    made = Owner(tmp_path_factory.mktemp("bench_pod"), server)
    yield made
    made.api.shutdown()


@pytest.fixture
def owner(served: Owner, server: ManyServer) -> Owner:
    server.answering, served.cluster.old, served.cluster.slow = sound, False, 0.0
    server.requests.clear()
    served.cluster.ran.clear()
    served.cluster.root = served.folder / f"pods-{time.monotonic_ns()}"
    return served


@pytest.mark.more
def test_a_model_is_measured_from_beside_its_head_and_nothing_is_left(owner: Owner, server: ManyServer) -> None:
    owner.cluster.writes.clear()
    code, said, changed = owner.run("--check", **SHORT)
    assert (code, changed, owner.cluster.writes, server.requests) == (0, 0, [], []), said
    killed = owner.another("Succeeded")  # left by a run that was killed
    with leaks.Watch() as watch:
        code, said, changed = owner.run("-vvv", **SHORT)
    assert (code, changed) == (0, 0), said
    assert owner.left() == [] and killed not in {key[3] for key in owner.cluster.objects}
    report = owner.report()
    assert (report["from"], report["model"]) == ("pod", "stand-in")
    assert report["url"] == server.url
    assert [level["verdict"] for level in report["workloads"][0]["levels"]] == ["good", "good"]
    assert "chat: 2 at once: 2 of 2 requests" in said and "asked from a pod of the cluster" in said
    assert "<h1>Good</h1>" in (owner.folder / "out/b.html").read_text(encoding="utf-8")
    # The key comes from the instance's Secret, and is in no other object, argument, log or file of ours.
    assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}
    (pod,) = owner.cluster.ran
    texts = {"output": said, "pod": json.dumps(pod), "log": owner.cluster.logs[pod["metadata"]["name"]]}
    assert not [name for name, text in texts.items() if KEY in text] and not watch.holding(KEY)
    assert "one, two, three" not in texts["log"], "an answer's text"
    assert pod["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "spark1"}
    assert list((owner.folder / "tmp").glob("k8srcp-*.json")), "what the Kubernetes client has discovered"


@pytest.mark.long
def test_garbage_ends_with_another_status_and_the_report_is_there(owner: Owner, server: ManyServer) -> None:
    server.answering = lambda _request: sse(*["! "] * 500, reason="length", tokens=500)
    said = owner.says(**SHORT | {"dgxspark_bench_node": "spark3"})
    assert "chat: 2 at once: the answers to 2 of 2 requests are garbage" in said
    assert owner.report()["workloads"][0]["levels"][0]["verdict"] == "garbage"
    assert owner.cluster.ran[0]["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "spark3"}
    assert owner.left() == []


@pytest.mark.long
def test_what_cannot_be_measured_is_one_sentence_and_leaves_nothing(owner: Owner, server: ManyServer) -> None:
    (owner.folder / "out/b.json").unlink(missing_ok=True)
    assert "There is no workload 'nothing'" in owner.says(**POD, dgxspark_bench_workloads=["nothing"])
    assert "spark9 is not a host of this play. Its hosts: spark1" in owner.says(**POD, dgxspark_bench_node="spark9")
    assert owner.cluster.ran == []
    owner.cluster.old = True
    said = owner.says(**SHORT)
    assert "on spark1: python3 of the image" in said and "3.9.1) is too old, 3.10 or newer is needed" in said
    assert "Measure from the controller: -e dgxspark_bench_from=controller." in said
    assert owner.left() == [] and not (owner.folder / "out/b.json").exists()
    assert not any(request.body for request in server.requests)


@pytest.mark.more
def test_two_runs_do_not_measure_each_other(owner: Owner, server: ManyServer) -> None:
    name = owner.another("Running")
    try:
        said = owner.says(**SHORT)
        assert f"another run is measuring this instance, in the pod {name}" in said
        assert f"kubectl delete pod {name} -n {SPACE}" in said
        assert sorted(owner.left()) == [name, name] and owner.cluster.ran == [] and server.requests == []
    finally:
        for plural in ("pods", "configmaps"):
            owner.cluster.delete(("v1", plural, SPACE, name))


@pytest.mark.more
def test_a_run_that_is_interrupted_takes_its_pod_away(owner: Owner) -> None:
    owner.cluster.slow = 600.0
    seen: list[list[str]] = []

    def interrupt() -> None:
        """Send SIGINT as a terminal does: to ansible-playbook itself, not to its workers."""
        while not owner.cluster.ran:
            time.sleep(0.1)
        time.sleep(3)
        seen.append(owner.left())
        found = {}
        for place in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                line = (place / "cmdline").read_bytes().split(b"\0")
                if owner.playbook.encode() in line and (place / "cwd").readlink() == owner.folder:
                    found[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        (main,) = (number for number, parent in found.items() if parent not in found)
        os.kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    code, said, _changed = owner.run(**SHORT)
    thread.join()
    assert code != 0 and len(seen[0]) == 2, said
    until = time.monotonic() + 60
    while owner.left() and time.monotonic() < until:
        time.sleep(0.5)
    assert owner.left() == []


@pytest.mark.more
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"dgxspark_bench_keep": "answers"}, "keeps no answers; it takes no dgxspark_bench_keep. Leave that out"),
        ({"dgxspark_bench_crosscheck": "llama-benchy", "dgxspark_bench_log": "x"}, "crosscheck, dgxspark_bench_log."),
        ({"dgxspark_bench_url": "http://192.0.2.1/v1", "dgxspark_bench_ca_path": "x"}, "ca_path, dgxspark_bench_url."),
        ({"dgxspark_bench_from": "moon"}, "dgxspark_bench_from: 'moon' is not one of controller, pod"),
    ],
)
def test_what_a_pod_cannot_do_is_refused(tmp_path: pathlib.Path, more: Plain, words: str) -> None:
    site = harness.Site(tmp_path, tmp_path / "no-cluster")
    site.playbook = str(harness.ROOT / "playbooks" / "bench.yml")
    code, said, _changed = site.run(**POD | more)
    assert code != 0 and words in " ".join(said.split()), said


@pytest.mark.more
def test_where_nothing_is_served_there_is_nothing_to_measure(tmp_path: pathlib.Path) -> None:
    cluster = kube_api.Cluster(["spark1"])
    api = kube_api.serve(cluster, tmp_path / "kubeconfig")
    site = harness.Site(tmp_path, tmp_path / "kubeconfig")
    site.playbook = str(harness.ROOT / "playbooks" / "bench.yml")
    code, said, _changed = site.run(**POD)
    api.shutdown()
    assert code != 0 and "There is no model to measure: " in said and "no instance 'default' is served" in said, said
    assert cluster.writes == []
    assert yaml.safe_load((tmp_path / "hosts.yml").read_text("utf-8"))


@pytest.mark.more
def test_tokens_per_joule_are_those_of_the_models_nodes(owner: Owner, server: ManyServer) -> None:
    """Each of four Sparks draws 40 W; the levels' answers take seconds. Without nvidia-smi the report says why it has none."""
    server.answering = slowly
    tools = owner.folder / "tools"
    tools.mkdir()
    program = tools / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA GB10, P0, 2400, 3003, 40.0, 50, 96'\n", encoding="utf-8")
    program.chmod(0o755)
    service = owner.cluster.objects["v1", "services", SPACE, "serve-default"]
    service["spec"]["type"], service["status"] = "LoadBalancer", {"loadBalancer": {"ingress": [{"ip": "127.0.0.1"}]}}
    (owner.folder / "key").write_text(KEY, encoding="utf-8")
    lasting = set(pathlib.Path(tempfile.gettempdir()).glob("dgxspark-bench-power-*"))
    for place in ("pod", "controller"):
        owner.environment = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
        own = {"dgxspark_bench_from": place, "dgxspark_bench_levels": [2], "k8s_dgx_api_key_file": "key"}
        code, said, changed = owner.run(**{**SHORT, **own})
        assert (code, changed) == (0, 0), said
        (level,) = owner.report()["workloads"][0]["levels"]
        energy, tokens = level["energy"], level["figures"]["tokens"]
        assert energy["watts"] == pytest.approx(160) and energy["readings"] >= 12
        assert energy["joules"] == pytest.approx(160 * level["figures"]["wall_s"], rel=0.05)
        assert energy["tokens_per_joule"] == pytest.approx(tokens / energy["joules"])
        assert (
            "tok/J" in said and "power of the GPUs of spark1, spark2, spark3, spark4, as nvidia-smi reports it" in said
        )
        assert "tok/J" in (owner.folder / "out/b.html").read_text(encoding="utf-8")
    program.write_text("#!/bin/sh\necho 'NVIDIA GB10, P0, 2400, 3003, [N/A], 50, 96'\n", encoding="utf-8")
    code, said, _changed = owner.run(**SHORT)
    why = "spark1: nvidia-smi reports no power for this GPU"
    assert code == 0 and why in owner.report()["power"]["problem"] and f"1, 2 at once: {why}" in " ".join(said.split())
    code, said, _changed = owner.run(**SHORT, dgxspark_bench_power=False)
    assert (code, owner.report()["power"]) == (0, None), said
    assert set(pathlib.Path(tempfile.gettempdir()).glob("dgxspark-bench-power-*")) == lasting
    owner.environment = {}


def slowly(request: t.Any) -> t.Any:
    """Answer as a sound server, whose answers to the load take nine seconds: time for readings on a busy machine, too."""
    return [0.3 if step == 0.004 else step for step in sound(request)]
