"""playbooks/matrix.yml as an owner runs it: one Spark that is this machine, a stand-in of the cluster, a scripted model server."""

from __future__ import annotations

import gzip
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import journal
from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api
from ansible_collections.dgxspark.cluster.tests.unit import guide
from ansible_collections.dgxspark.cluster.tests.unit.chat_server import Answer, ManyServer, Request, sse
from ansible_collections.dgxspark.cluster.tests.unit.sound_server import sound

Plain = dict[str, t.Any]
pytestmark = pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN)
PROFILE = "qwen3-vl-8b-instruct-fp8"
SLOW_S = 900.0  # a case runs five playbooks, each of which takes a minute on a busy machine
CRASHING = "registry.example/crashing:1"
SIGNATURES = knowledge.load("signatures")
ENTRY = {
    "id": "three",
    "title": "Three cases",
    "profile": PROFILE,
    "cases": {
        "sound": {"chunked_prefill_size": 4096},
        "garbage": {"chunked_prefill_size": 2048},
        "crash": {"image": CRASHING},
        "wide": {"nodes": 2, "tp": 2},
    },
    "bench": {"workloads": ["chat"], "levels": [1, 4]},
    "source": ["test"],
    "verified": "inferred",
}


class Owner(harness.Site):
    """The site, its cluster, and a model server whose answers depend on the served case."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.cluster = kube_api.Cluster(["spark1"])
        self.server = kube_api.serve(self.cluster, folder / "kubeconfig")
        self.model = ManyServer(answering=self.answer)
        local = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "ansible_host": "192.0.2.17",
        }
        super().__init__(
            folder,
            folder / "kubeconfig",
            {"spark1": local},
            k8s_dgx_image="",
            k8s_dgx_free_gib={"spark1": 110},
            dgxspark_plan={"hosts": {}},
            dgxspark_fabric={"topology": "single", "hardware": "lab"},
        )
        (folder / "three.yml").write_text(yaml.safe_dump(ENTRY), encoding="utf-8")
        self.cluster.logs["serve-default-rank0-0"] = (
            "loading\n" + SIGNATURES["engine.illegal-instruction"]["example"] + "\n"
        )
        self.playbook = str(harness.ROOT / "playbooks" / "matrix.yml")
        self.given = {
            "dgxspark_matrix": "three.yml",
            "dgxspark_matrix_share": "share.yml",
            "dgxspark_bench_url": "",
            "dgxspark_bench_rounds": 1,
        }
        self.over = threading.Event()
        threading.Thread(target=self.crash, daemon=True).start()

    def crash(self) -> None:
        """Keep the container with the crashing image in CrashLoopBackOff."""
        count = 0
        while not self.over.wait(1):
            count += 1
            ended = {"exitCode": 1, "reason": "Error", "startedAt": f"{count}", "finishedAt": f"{count}"}
            status = {"name": "rank", "image": CRASHING, "ready": False, "restartCount": count}
            status |= {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": ended}}
            conditions = [{"type": "Ready", "status": "False"}]
            with self.cluster.lock:
                for name, pod in self.cluster.pods().items():
                    if "-rank" in name and pod["spec"]["containers"][0]["image"] == CRASHING:
                        pod["status"] = {"phase": "Running", "containerStatuses": [status], "conditions": conditions}

    def argv(self) -> str:
        """Return the words with which the serving rank was started."""
        texts = [
            text
            for made in self.cluster.objects.values()
            if made["kind"] == "ConfigMap" and made["metadata"]["name"].startswith("serve-default")
            for name, text in made["data"].items()
            if name.endswith(".json")
        ]
        return " ".join(word for text in texts for word in re.findall(r'"([^"\n]*)"', text))

    def answer(self, request: Request) -> Answer:
        """Answer as the served case does."""
        garbage = re.search(r"chunked-prefill-size[ =]2048\b", self.argv())
        return sse(*["!"] * 200, tokens=200) if garbage else sound(request)

    def serve(self) -> None:
        """Serve a model before the matrix starts."""
        self.playbook = "play.yml"
        self.good(k8s_dgx_model_profile=PROFILE)
        self.playbook = str(harness.ROOT / "playbooks" / "matrix.yml")

    def sets(self) -> list[Plain]:
        """Return the specifications of what is served."""
        return [made["spec"] for made in self.cluster.of("StatefulSet").values()]

    def done(self) -> dict[str, Plain]:
        """Return the outcomes by the case's name."""
        place = self.folder / "matrix" / "three" / journal.NAME
        return {e["name"]: e for e in journal.outcomes(journal.read(place)).values()} if place.exists() else {}


@pytest.fixture
def owner(tmp_path: pathlib.Path) -> t.Iterator[Owner]:
    made = Owner(tmp_path)
    with made.model:
        made.given["dgxspark_bench_url"] = made.model.url
        yield made
    made.over.set()
    made.server.shutdown()


def as_printed(owner: Owner, number: int) -> list[str]:
    """Choose the playbook of one of the guide's commands; return its options, with the owner's inventory and matrix."""
    _program, owner.playbook, *options = shlex.split(guide.commands("guide_matrix")[number])
    assert options[:2] == ["-i", "inventory"]
    return [option.replace("=002-gemma-4-31b", "=three.yml") for option in options[2:]]


def test_what_it_would_measure_is_shown_and_nothing_is_touched(owner: Owner) -> None:
    check = as_printed(owner, 0)
    assert "--check" in check
    code, said, changed = owner.run(*check, **owner.given)
    assert (code, changed) == (0, 0), said
    assert "3 of 4 cases would be measured" in said
    assert re.search(r"sound +estimate: n1 [0-9.]+ \([0-9.]+ to [0-9.]+\), n4 ", said), said
    assert re.search(r"wide +blocked: .*2 nodes are needed, the cluster has 1\. The nearest that fit: ", said), said
    assert not (owner.folder / "matrix").exists()
    assert not (owner.folder / "share.yml").exists()
    assert owner.cluster.writes == []
    assert owner.model.requests == []


@pytest.mark.long
def test_three_cases_their_evidence_and_the_model_before(owner: Owner) -> None:
    owner.serve()
    before = owner.sets()
    code, said, _changed = owner.run(*as_printed(owner, 1), **owner.given)
    assert code == 0, said
    done = owner.done()
    assert {name: entry["outcome"] for name, entry in done.items()} == {
        "sound": "good",
        "garbage": "garbage",
        "crash": "illegal_instruction",
    }, done
    # The model before serves again, exactly.
    assert owner.sets() == before
    # The table leads to each case's evidence: answers, logs, each step's output.
    folder = owner.folder / "matrix" / "three"
    crash, sound_case = folder / done["crash"]["evidence"], folder / done["sound"]["evidence"]
    with gzip.open(crash / "logs/serve-default-rank0-0.log.gz", "rt") as log:
        assert done["crash"]["line"] in log.read()
    assert done["crash"]["where"].startswith("serve-default-rank0-0")
    assert list((sound_case / "answers-1").iterdir())
    assert {"switch.log.gz", "verify.log.gz", "bench-1.log.gz", "bench-1.json.gz"} <= {
        p.name for p in sound_case.iterdir()
    }
    page = (folder / "matrix.html").read_text()
    assert done["crash"]["evidence"] in page
    # Rows are in the owner's folder and count as evidence: the case's plan is proven, and the crash is blocked.
    rows = {
        row["case"]: row
        for row in yaml.safe_load((owner.folder / "dgxspark/evidence/matrix-three.yml").read_text())["entries"]
    }
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "sound": "stable",
        "garbage": "garbage",
        "crash": "crash",
    }
    assert set(rows["sound"]["measured"]) >= {"n1", "n4", "wall", "ttft_ms", "requests"}
    # The log says what was blocked, and why; an image that differs between cases is left out.
    log = (folder / "matrix.md").read_text()
    assert re.search(r"\*\*wide\*\*: blocked by the plan: ", log), log
    assert CRASHING not in log
    # The next plan is proven by the row.
    owner.playbook = "dgxspark.cluster.plan"
    measured = {"settings": {"chunked_prefill_size": 4096}}
    code, said, _changed = owner.run(k8s_dgx_model_profile=PROFILE, k8s_dgx_overrides=measured)
    assert code == 0, said
    assert "PROVEN" in said, said
    assert rows["sound"]["id"] in said, said
    # The file to share has none of the site's names and addresses.
    shared = (owner.folder / "share.yml").read_text()
    for name in ("spark1", "192.0.2.17", "127.0.0.1", os.uname().nodename, str(owner.folder)):
        assert not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", shared), name
    # Again: nothing is left to measure, so nothing is touched or asked.
    owner.cluster.writes.clear()
    owner.model.requests.clear()
    code, said, changed = owner.run(*as_printed(owner, 1), **owner.given)
    assert (code, changed) == (0, 0), said
    assert owner.cluster.writes == []
    assert owner.model.requests == []


def started(owner: Owner) -> subprocess.Popen[str]:
    """Start a run in the background, so that a test can stop it."""
    env = {
        **os.environ,
        "ANSIBLE_CONFIG": str(owner.folder / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": f"{owner.folder / 'collections'}{os.pathsep}{harness.collections()}",
        "ANSIBLE_HOME": str(owner.folder / "home"),
    }
    place = owner.folder / "variables.json"
    place.write_text(json.dumps(owner.given), encoding="utf-8")
    command = [
        str(pathlib.Path(sys.executable).parent / "ansible-playbook"),
        "-i",
        "hosts.yml",
        owner.playbook,
        "-e",
        f"@{place}",
    ]
    return subprocess.Popen(
        command,
        cwd=owner.folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def begun(owner: Owner, step: str) -> None:
    """Wait until a step of the first case runs."""
    until = time.monotonic() + SLOW_S
    while not list((owner.folder / "matrix/three").glob(f"cases/*/{step}.vars.json")):
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.long
def test_ctrl_c_stops_after_the_case_and_the_model_before_serves(owner: Owner) -> None:
    owner.serve()
    before = owner.sets()
    process = started(owner)
    begun(owner, "switch")
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=SLOW_S)[0]
    assert process.returncode != 0
    assert "interrupted" in said
    assert len(owner.done()) == 1, said
    assert owner.sets() == before


@pytest.mark.long
@pytest.mark.parametrize("step", ["switch", "bench-1"])
def test_killed_it_goes_on_where_it_was(owner: Owner, step: str) -> None:
    owner.serve()
    before = owner.sets()
    process = started(owner)
    begun(owner, step)
    process.kill()
    process.communicate(timeout=60)
    until = time.monotonic() + SLOW_S
    while True:  # the case in progress finishes; until then, another run is refused
        code, said, _changed = owner.run(**owner.given)
        if code == 0:
            break
        assert "another run" in said, said
        assert time.monotonic() < until
    assert set(owner.done()) == {"sound", "garbage", "crash"}
    names = [entry["name"] for entry in journal.read(owner.folder / "matrix/three") if entry["event"] == "case"]
    assert len(names) == 3
    assert owner.sets() == before


@pytest.mark.long
def test_a_lost_node_ends_it_with_the_model_before(owner: Owner) -> None:
    owner.serve()
    before = owner.sets()
    process = started(owner)
    begun(owner, "bench-1")  # from the next step on, the node does not answer
    hosts = owner.folder / "hosts.yml"
    inventory = hosts.read_text()
    lost = yaml.safe_load(inventory)
    lost["dgx"]["hosts"]["spark1"] = {"ansible_host": "127.0.0.1", "ansible_port": 1}
    hosts.write_text(yaml.safe_dump(lost), encoding="utf-8")
    said = process.communicate(timeout=SLOW_S)[0]
    assert process.returncode != 0
    assert "spark1: lost during" in " ".join(said.split()), said
    measured = len(owner.done())
    assert measured < 3
    assert owner.sets() == before
    # The node is back: the interrupted case is measured, and no case twice.
    hosts.write_text(inventory, encoding="utf-8")
    owner.given["dgxspark_matrix_hours"] = 0.0001
    code, said, _changed = owner.run(**owner.given)
    assert code == 0, said
    assert len(owner.done()) == measured + 1
    assert owner.sets() == before


@pytest.mark.long
def test_a_matrix_that_changed_is_noticed(owner: Owner) -> None:
    owner.given["dgxspark_matrix_hours"] = 0.0001
    code, said, _changed = owner.run(**owner.given)
    assert code == 0, said
    assert "2 cases are left (the time limit is reached)" in said
    entry = {**ENTRY, "cases": {**ENTRY["cases"], "more": {"chunked_prefill_size": 1024}}}  # type: ignore[dict-item]
    (owner.folder / "three.yml").write_text(yaml.safe_dump(entry), encoding="utf-8")
    code, said, _changed = owner.run(**owner.given)
    assert code != 0
    assert "1 cases are new (more), 0 are gone" in " ".join(said.split())
