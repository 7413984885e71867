"""The live view as an owner runs it, against the stand-in of an API server and a port that answers with an engine's metrics."""

from __future__ import annotations

import http.server
import json
import os
import pathlib
import pty
import subprocess
import threading
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.serving import serving
from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api
from ansible_collections.dgxspark.cluster.tests.support.engine_metrics import VLLM
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs

pytestmark = pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN)


class Busy(harness.Site):
    """Two groups on one Spark each: the first answers, and each time has written 50 tokens more; the second does not."""

    def __init__(self, folder: pathlib.Path) -> None:
        asked = [0]

        class Engine(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked[0] += 1
                body = VLLM.format(prompted=7, written=1000 + 50 * asked[0], finished=3).encode()
                self.send_response(200 if self.path == "/metrics" else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_words: object) -> None:
                pass

        self.engine = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine)
        threading.Thread(target=self.engine.serve_forever, daemon=True).start()
        self.cluster = kube_api.Cluster(inputs.names(2))
        self.cluster.addresses = {"spark1": "127.0.0.1", "spark2": "127.0.0.9"}
        self.api = kube_api.serve(self.cluster, folder / "kubeconfig")
        super().__init__(folder, folder / "kubeconfig", count=2)
        self.playbook = str(harness.ROOT / "playbooks" / "top.yml")
        parallel = {"nodes": 1, "tp": 1, "pp": 1, "ep": 1}
        for number, name in enumerate(("coder", "chat")):
            made = inputs.plan(
                "qwen3-coder-30b-a3b-instruct-fp8", 1, "host", parallel=parallel,
                instance={"name": name, "vf_index": number, "port": self.engine.server_port, "dist_port": 50000 + 1000 * number},
            )  # fmt: skip
            self.serve(made, f"spark{number + 1}")

    def serve(self, made: dict[str, t.Any], host: str) -> None:
        objects = serving(made, inputs.fabric(1), {"attachment": "host", "image": inputs.PINNED})
        for each in [*objects["common"], *objects["head"]]:
            plain = json.loads(json.dumps(each).replace("spark1", host))
            plural = {"StatefulSet": "statefulsets", "Service": "services", "ConfigMap": "configmaps"}.get(
                plain["kind"]
            )
            if plural:
                about = plain["metadata"]
                self.cluster.put((plain["apiVersion"], plural, about["namespace"], about["name"]), plain)

    def close(self) -> None:
        self.engine.shutdown()
        self.api.shutdown()


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Busy]:
    made = Busy(tmp_path_factory.mktemp("top"))
    yield made
    made.close()


def test_without_a_terminal_the_second_reading_is_shown_once(busy: Busy) -> None:
    code, said, changed = busy.run(dgxspark_top_seconds=1, dgxspark_top_file="top.json")
    assert (code, changed) == (0, 0), said
    assert said.count("Sparks, 2 groups, rates over") == 1 and "\x1b" not in said, said
    view = json.loads((busy.folder / "top.json").read_text(encoding="utf-8"))
    first, second = sorted(view["groups"], key=lambda each: str(each["hosts"]))
    assert (first["name"], first["hosts"], first["running"], first["cache"]) == ("coder", ["spark1"], 8, 0.43)
    assert first["output_tokens_per_s"] == pytest.approx(50 / view["seconds"])
    assert "127.0.0.9" in second["why"] and second["name"] == "chat"
    assert set(view["nodes"]) == {"spark1", "spark2"} and view["nodes"]["spark1"]["total_gib"] > 1


@pytest.mark.more
def test_on_a_terminal_it_begins_anew_each_time_and_a_lost_cluster_is_said(busy: Busy) -> None:
    busy.run(dgxspark_top_rounds=1)  # writes what it is given down
    given = json.loads((busy.folder / "variables.json").read_text(encoding="utf-8"))
    given |= {"dgxspark_top_rounds": 2, "dgxspark_top_seconds": 1, "k8s_dgx_kubeconfig": str(busy.folder / "none")}
    (busy.folder / "variables.json").write_text(json.dumps(given), encoding="utf-8")
    outside, inside = pty.openpty()
    env = {
        **os.environ,
        "ANSIBLE_CONFIG": str(busy.folder / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": f"{busy.folder / 'collections'}{os.pathsep}{harness.collections()}",
        "ANSIBLE_STDOUT_CALLBACK": "dgxspark.cluster.answer",
    }
    command = [str(harness.PROGRAM), "-i", "hosts.yml", busy.playbook, "-e", "@variables.json"]
    child = subprocess.Popen(command, cwd=busy.folder, env=env, stdin=inside, stdout=inside, stderr=inside)
    os.close(inside)
    said = b""
    try:
        while data := os.read(outside, 65536):
            said += data
    except OSError:  # the terminal's other end is closed
        pass
    assert child.wait() == 0, said.decode()
    text = said.decode()
    assert text.count("\x1b[H\x1b[2J") == 2 and text.count("Groups are not seen:") == 2, text
