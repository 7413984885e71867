"""The live view as an owner runs it, against the stand-in of an API server and a port that answers with an engine's metrics."""

from __future__ import annotations

import http.server
import json
import os
import pathlib
import signal
import threading
import time
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.serving import serving
from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api
from ansible_collections.dgxspark.cluster.tests.support.engine_metrics import VLLM
from ansible_collections.dgxspark.cluster.tests.support.tty import Tty
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs

# Python reads this before all else: rich is not installed.
WITHOUT_RICH = """
import importlib.metadata as metadata
version = metadata.version
def without(name):
    if name == "rich":
        raise metadata.PackageNotFoundError(name)
    return version(name)
metadata.version = without
"""
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


@pytest.fixture
def on_a_terminal(busy: Busy) -> t.Iterator[t.Callable[..., Tty]]:
    """Yield what starts it on a terminal of 80 columns, as an owner does."""
    made: list[Tty] = []
    busy.run(dgxspark_top_rounds=1)  # writes what it is given down

    def start(**given: t.Any) -> Tty:
        made.append(begun(busy, given))
        return made[-1]

    yield start
    for each in made:
        each.close()


def begun(busy: Busy, given: t.Mapping[str, t.Any]) -> Tty:
    variables = json.loads((busy.folder / "variables.json").read_text(encoding="utf-8"))
    variables = {"dgxspark_top_seconds": 1, **{key: variables[key] for key in ("k8s_dgx_model_profile",)}, **given}
    (busy.folder / "terminal.json").write_text(json.dumps(variables), encoding="utf-8")
    env = {
        **os.environ,
        "ANSIBLE_CONFIG": str(busy.folder / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": f"{busy.folder / 'collections'}{os.pathsep}{harness.collections()}",
        "ANSIBLE_STDOUT_CALLBACK": "dgxspark.cluster.answer",
        "TMPDIR": str(busy.temporary),
    }
    return Tty([str(harness.PROGRAM), "-i", "hosts.yml", busy.playbook, "-e", "@terminal.json"], busy.folder, env)


def left_over(busy: Busy) -> list[str]:
    return [each.name for each in busy.temporary.iterdir() if each.name.startswith("dgxspark-top-")]


@pytest.mark.more
def test_on_a_terminal_it_refreshes_until_ctrl_c(busy: Busy, on_a_terminal: t.Callable[..., Tty]) -> None:
    tty = on_a_terminal(dgxspark_top_file="live.json")
    first = tty.until(lambda text: "q ends" in text, 120)
    clock = first.split()[0]
    later = tty.until(lambda text: "q ends" in text and "rates over" in text and text.split()[0] != clock, 120)
    assert "coder" in later and "2 of 2 Sparks" in later
    tty.resize(60, 20)
    tty.until(lambda text: "more in a larger window" in text)
    tty.type(b"\x03")
    assert tty.end(60) == 0, tty.text()
    # The last view stays on the terminal, and is written.
    last = tty.raw.rpartition(b"\x1b[?1049l")[2].decode()
    assert tty.restored and last.count("rates over") == 1 and "coder" in last, last
    assert json.loads((busy.folder / "live.json").read_text(encoding="utf-8"))["seconds"] > 0
    assert left_over(busy) == []


@pytest.mark.more
def test_a_playbook_that_is_ended_leaves_the_terminal_as_it_was(
    busy: Busy, on_a_terminal: t.Callable[..., Tty]
) -> None:
    tty = on_a_terminal()
    tty.until(lambda text: "q ends" in text, 120)
    tty.kill(signal.SIGTERM)
    assert tty.end(60) != 0
    end = time.monotonic() + 10
    while not tty.restored and time.monotonic() < end:
        tty.read()
    assert tty.restored and left_over(busy) == []


@pytest.mark.more
def test_the_rounds_asked_for_and_a_lost_cluster_is_said(busy: Busy, on_a_terminal: t.Callable[..., Tty]) -> None:
    tty = on_a_terminal(dgxspark_top_rounds=2, k8s_dgx_kubeconfig=str(busy.folder / "none"))
    tty.until(lambda text: "q ends" in text and "Groups are not seen:" in text, 120)
    assert (tty.end(60), tty.restored) == (0, True)
    assert tty.raw.rpartition(b"\x1b[?1049l")[2].count(b"Groups are not seen:") == 1


@pytest.mark.more
def test_without_rich_the_terminal_gets_the_table_once_and_a_line_how_to_have_more(
    busy: Busy, on_a_terminal: t.Callable[..., Tty]
) -> None:
    hidden = busy.folder / "without"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(WITHOUT_RICH, encoding="utf-8")
    before = os.environ.get("PYTHONPATH", "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{hidden}{os.pathsep}{before}")
        tty = on_a_terminal()
        assert tty.end(120) == 0
    said = " ".join(tty.raw.decode().split())
    assert b"\x1b[?1049h" not in tty.raw and said.count("rates over") == 1, said
    assert "This is shown once, not live." in said and "lacks Python packages: rich>=13. Install them:" in said, said
