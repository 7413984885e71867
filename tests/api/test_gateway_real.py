"""The gateway's files in the real LiteLLM (PyPI: litellm[proxy], prisma), in front of scripted engines, each a process.

DGXSPARK_LITELLM names its program; else it is looked for in PATH.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time
import typing as t
import urllib.parse

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import gateway as core
from ansible_collections.dgxspark.cluster.tests.support.ports import free_port
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT

Plain = dict[str, t.Any]
PROGRAM = os.environ.get("DGXSPARK_LITELLM") or shutil.which("litellm")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not PROGRAM, reason="not run: litellm (litellm[proxy] and prisma of PyPI) is not there"),
]
KEY = "gateway-" + "9fBz3" * 8
ENGINE = ROOT / "tests" / "stand_ins" / "scripted_engine.py"
START_S = 180


class Stack:
    """Engines, and the gateway in front of them with the files that the role gives it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.port = folder, free_port()
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.ports: dict[str, int] = {}

    def engine(self, name: str, model: str) -> None:
        port = self.ports.setdefault(name, free_port())
        command = [sys.executable, str(ENGINE), "--model-path", model, "--port", str(port)]
        env = {**os.environ, "SCRIPTED": '{"token_s": 0.2}', "SCRIPTED_LOAD_S": "0"}
        self.running[name] = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: self._status(port, "/health") == 200)

    def gateway(self, key: str = KEY, **names: t.Sequence[str]) -> None:
        """Start the gateway for instances by name, with the names of each. The engines are on loopback, not in a cluster."""
        self.folder.mkdir(exist_ok=True)
        served = [
            core.Backend(f"serve-{name}", "dgx-serving", tuple(said), self.ports[name], self.ports[name])
            for name, said in names.items()
        ]
        handler = (ROOT / "roles" / "model_gateway" / "files" / "group_down.py").read_text(encoding="utf-8")
        asked = {"version": "1.108.7", "digest": "sha256:" + "1" * 64, "timeout_s": 120}
        made = core.gateway(asked, served, core.Keys(key, {}), handler)
        files = dict(next(each["data"] for each in made["objects"] if each["kind"] == "ConfigMap"))
        for name, text in made["secret"]["data"].items():
            files[name] = base64.b64decode(text).decode()
        for name, text in files.items():
            for each in names:
                text = text.replace(f"serve-{each}.dgx-serving.svc", "127.0.0.1")
            (self.folder / name).write_text(text, encoding="utf-8")
        pod = made["objects"][-1]["spec"]["template"]["spec"]["containers"][0]
        words = {core.FOLDER: str(self.folder), str(core.PORT): str(self.port)}
        arguments = [
            word.replace(core.FOLDER, str(self.folder)) if "/" in word else words.get(word, word)
            for word in pod["args"]
        ]
        env = {**os.environ, **{each["name"]: each["value"] for each in pod["env"]}}
        with (self.folder / "log").open("wb") as log:
            command = [str(PROGRAM), "--host", "127.0.0.1", *arguments]
            self.running["gateway"] = subprocess.Popen(command, env=env, cwd=self.folder, stdout=log, stderr=log)
        until(lambda: self._status(self.port, pod["readinessProbe"]["httpGet"]["path"]) == 200)

    def _status(self, port: int, path: str) -> int:
        with contextlib.suppress(OSError), contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, 5)) as made:
            made.request("GET", path)
            return made.getresponse().status
        return 0

    def ask(self, model: str, place: str = "chat/completions", key: str = KEY, **more: t.Any) -> tuple[int, str, float]:
        """Return status, body and seconds of a request."""
        body = {"model": model, "max_tokens": 4, "messages": [{"role": "user", "content": "hi there"}], **more}
        start = time.monotonic()
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as made:
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
            made.request("POST", f"/v1/{place}", json.dumps(body), headers)
            said = made.getresponse()
            return said.status, said.read().decode(), time.monotonic() - start

    def sign_in(self, user: str, password: str) -> int:
        """Return the status of a sign-in to the administration."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as made:
            form = urllib.parse.urlencode({"username": user, "password": password})
            made.request("POST", "/login", form, {"Content-Type": "application/x-www-form-urlencoded"})
            return made.getresponse().status

    def close(self) -> None:
        for each in self.running.values():
            each.kill()
            each.wait()


def until(reached: t.Callable[[], bool]) -> None:
    end = time.monotonic() + START_S
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.fixture
def stack(tmp_path: pathlib.Path) -> t.Iterator[Stack]:
    made = Stack(tmp_path)
    yield made
    made.close()


def test_a_group_goes_down_and_the_gateway_is_replaced_under_streams(stack: Stack) -> None:
    """One start, many looks: names, keys, a group that is killed, a name of two groups, and the end of a pod."""
    for name, model in (("a", "org/a"), ("b", "org/b"), ("c1", "org/c"), ("c2", "org/c")):
        stack.engine(name, model)
    stack.gateway(a=["org/a", "gpt-4o"], b=["org/b"], c1=["org/c"], c2=["org/c"])
    for model in ("org/a", "gpt-4o", "org/b", "org/c"):
        assert stack.ask(model)[0] == 200
    assert stack.ask("org/a", "messages")[0] == 200
    assert stack.ask("org/none")[0] in (400, 404)
    assert 400 <= stack.ask("org/a", key="wrong-" * 6)[0] < 500
    assert stack.sign_in("admin", KEY) in (401, 403)
    # A long stream of one model, while another model's group and one of two groups of a third are killed.
    streams: list[tuple[int, str, float]] = []
    counting = {"messages": [{"role": "user", "content": "count from one to forty"}], "max_tokens": 40, "stream": True}
    threads = [threading.Thread(target=lambda: streams.append(stack.ask("org/a", **counting))) for _number in range(8)]
    for each in threads:
        each.start()
    time.sleep(1)
    for name in ("b", "c2"):
        stack.running[name].kill()
        stack.running[name].wait()
    for place in ("chat/completions", "messages"):
        for stream in (False, True):
            status, said, seconds = stack.ask("org/b", place, stream=stream)
            assert (status, "none of its groups can be reached" in said) == (503, True), (place, stream, said)
            assert seconds < 5
    assert {stack.ask("org/c")[0] for _number in range(10)} == {200}
    # It is told to end, as the pod that a rollout replaces: nothing new, and the streams go on to their end.
    assert not streams
    stack.running["gateway"].send_signal(signal.SIGTERM)
    for each in threads:
        each.join()
    assert len(streams) == 8
    for status, said, _seconds in streams:
        assert status == 200 and said.rstrip().endswith("data: [DONE]"), said[-300:]
    assert stack.running["gateway"].wait(30) in (0, -signal.SIGTERM)


def test_what_it_adds_to_a_request(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    """Not a bound of speed, for a busy machine would break it: the figure is shown."""
    stack.engine("a", "org/a")
    stack.gateway(a=["org/a"])
    stack.ask("org/a")
    through = sorted(stack.ask("org/a")[2] for _number in range(50))[25]
    stack.port, own = stack.ports["a"], stack.port
    direct = sorted(stack.ask("org/a")[2] for _number in range(50))[25]
    stack.port = own
    with capsys.disabled():
        print(f"\nmedian of 50 requests: {direct * 1000:.1f} ms direct, {through * 1000:.1f} ms through the gateway")
    assert through < 5


def test_64_streams_outlive_a_roll_to_a_new_key_and_a_group_that_is_killed(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a rollout does it: the new gateway answers, requests go there, the old one is told to end. All that is lost is counted."""
    for name, model in (("a", "org/a"), ("c1", "org/c"), ("c2", "org/c")):
        stack.engine(name, model)
    names = {"a": ["org/a"], "c1": ["org/c"], "c2": ["org/c"]}
    stack.gateway(**names)
    streams: list[tuple[int, str, float]] = []
    counting = {"messages": [{"role": "user", "content": "count from one to forty"}], "max_tokens": 40, "stream": True}
    threads = [threading.Thread(target=lambda: streams.append(stack.ask("org/a", **counting))) for _number in range(64)]
    others: list[int] = []
    going, place = threading.Event(), [(stack, KEY)]

    def ask_on() -> None:
        while not going.is_set():
            where, key = place[0]
            others.append(where.ask("org/c", key=key)[0])

    asking = [threading.Thread(target=ask_on) for _number in range(4)]
    for each in (*threads, *asking):
        each.start()
    time.sleep(2)
    stack.running["c2"].kill()
    second = Stack(stack.folder / "second")
    second.ports = stack.ports
    try:
        second.gateway(key=KEY[::-1], **names)
        place[0] = (second, KEY[::-1])
        time.sleep(core.STOP_S)
        stack.running["gateway"].send_signal(signal.SIGTERM)
        for each in threads:
            each.join()
        assert 400 <= second.ask("org/c", key=KEY)[0] < 500
        going.set()
        for each in asking:
            each.join()
    finally:
        going.set()
        second.close()
    whole = sum(status == 200 and said.rstrip().endswith("data: [DONE]") for status, said, _seconds in streams)
    with capsys.disabled():
        print(
            f"\n{whole} of 64 streams whole; {others.count(200)} of {len(others)} requests of the other model answered"
        )
    assert whole == 64 and set(others) == {200}
