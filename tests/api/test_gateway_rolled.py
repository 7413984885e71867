"""Two groups of one name are restarted, switched and killed, by the role and by groups.yml, while requests go through the real LiteLLM.

The API server is the stand-in. What a kubelet and a Service do is done here: a process for the gateway's pod and for each head, which is a
scripted engine, and connections to the newest gateway that is ready. Ranks other than heads are the stand-in's alone.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import gateway as core
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.settings import INSTANCE_LABEL, RANK
from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.support import kube_owner
from ansible_collections.dgxspark.cluster.tests.support.kube_site import StandIn
from ansible_collections.dgxspark.cluster.tests.support.ports import free_port
from ansible_collections.dgxspark.cluster.tests.support.streams import COUNT, fault
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT

PROGRAM = os.environ.get("DGXSPARK_LITELLM") or shutil.which("litellm")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN),
    pytest.mark.skipif(not PROGRAM, reason="not run: litellm (litellm[proxy] and prisma of PyPI) is not there"),
]
KEY = "gateway-" + "9fBz3" * 8
GATEWAY: dict[str, t.Any] = {
    "model_gateway_digest": "sha256:" + "1" * 64, "model_gateway_api_key": KEY, "model_gateway_state": "present",
    "model_gateway_drain_timeout": 120, "k8s_dgx_aliases": ["one-name"], "k8s_platform_gpu_shares": 2,
}  # fmt: skip
SECOND = {"instance": {"name": "second", "vf_index": 1, "port": 30001, "dist_port": 51000}}
FIRST, SECOND_MODEL = "qwen3.8-flash-next-nvfp4-vllm", "qwen3-coder-next-fp8-vllm"
START_S, CLIENTS = 900, 12


class Node:
    """A process for each pod that matters, and the gateway's Service."""

    def __init__(self, site: StandIn | kube_owner.Owner) -> None:
        self.site, self.cluster = site, site.cluster
        self.heads: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}  # by instance: the pod's uid
        self.ports: dict[str, int] = {}
        self.gateways: list[subprocess.Popen[bytes]] = []
        self.target, self.stamp, self.over = 0, "", threading.Event()
        self.put, self.cluster.put = self.cluster.put, self._put  # type: ignore[method-assign]
        node = self

        class Relay(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with socket.create_connection(("127.0.0.1", node.target)) as there:
                    threading.Thread(target=copied, args=(there, self.request), daemon=True).start()
                    copied(self.request, there)

        self.service = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Relay)
        self.service.daemon_threads = True
        for each in (self.service.serve_forever, self._watch):
            threading.Thread(target=each, daemon=True).start()

    def _put(self, key: t.Any, made: t.Any) -> t.Any:
        done = self.put(key, made)
        if done["kind"] == "Deployment" and key[3] == "model-gateway":
            stamp = json.dumps(done["spec"]["template"]["metadata"], sort_keys=True)
            if stamp != self.stamp:
                self.stamp = stamp
                self._roll(done)
        return done

    def _roll(self, deployment: t.Any) -> None:
        """Start the new gateway; once it answers, connections go there, and the old one is told to end, as in a rollout."""
        number, port = len(self.gateways), free_port()
        folder = self.site.folder / f"gateway-{number}"
        folder.mkdir()
        space = key_of(self.cluster, "ConfigMap")["data"].items(), key_of(self.cluster, "Secret")["data"].items()
        files = dict(space[0]) | {name: base64.b64decode(text).decode() for name, text in space[1]}
        for name, text in files.items():
            (folder / name).write_text(
                re.sub(r"serve-([\w-]+)\.dgx-serving\.svc:\d+", self._place, text), encoding="utf-8"
            )
        pod = deployment["spec"]["template"]["spec"]["containers"][0]
        words = {str(core.PORT): str(port)}
        arguments = [
            word.replace(core.FOLDER, str(folder)) if "/" in word else words.get(word, word) for word in pod["args"]
        ]
        env = {**os.environ, **{each["name"]: each["value"] for each in pod["env"] if "value" in each}}
        with (folder / "log").open("wb") as log:
            command = [str(PROGRAM), "--host", "127.0.0.1", *arguments]
            self.gateways.append(subprocess.Popen(command, env=env, cwd=folder, stdout=log, stderr=log))
        until(lambda: status(port, pod["readinessProbe"]["httpGet"]["path"]) == 200)
        self.target = port
        about = {
            "name": f"model-gateway-{number}",
            "namespace": "dgx-serving",
            "labels": deployment["spec"]["template"]["metadata"]["labels"],
        }
        place = ("v1", "pods", "dgx-serving", about["name"])
        self.cluster.objects[place] = {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": {}, "status": {}}
        if number:
            threading.Thread(target=self._end, args=(number - 1,), daemon=True).start()

    def _place(self, found: re.Match[str]) -> str:
        return f"127.0.0.1:{self.ports.setdefault(found[1], free_port())}"

    def _end(self, number: int) -> None:
        time.sleep(core.STOP_S)
        self.gateways[number].send_signal(signal.SIGTERM)
        self.gateways[number].wait()
        del self.cluster.objects["v1", "pods", "dgx-serving", f"model-gateway-{number}"]

    def _watch(self) -> None:
        """Run the engine of each head whose pod is there, and end it with its pod."""
        while not self.over.is_set():
            there = {}
            for pod in list(self.cluster.objects.values()):
                labels = pod["metadata"].get("labels") or {}
                if pod["kind"] == "Pod" and labels.get(RANK) == "0":
                    there[labels[INSTANCE_LABEL]] = pod["metadata"]["uid"]
            for name, (uid, engine) in list(self.heads.items()):
                if there.get(name) != uid:
                    engine.kill()
                    engine.wait()
                    del self.heads[name]
            for name, uid in there.items():
                if name not in self.heads:
                    port = self.ports.setdefault(name, free_port())
                    command = [sys.executable, str(ROOT / "tests/stand_ins/scripted_engine.py")]
                    env = {**os.environ, "SCRIPTED": '{"token_s": 0.3}', "SCRIPTED_LOAD_S": "0"}
                    words = [*command, "--model-path", harness.MODEL, "--port", str(port)]
                    with (self.site.folder / f"engine-{name}.log").open("ab") as log:
                        self.heads[name] = uid, subprocess.Popen(words, env=env, stdout=log, stderr=log)
            time.sleep(0.05)

    def close(self) -> None:
        self.over.set()
        self.service.shutdown()
        for each in (*self.gateways, *(engine for _uid, engine in self.heads.values())):
            each.kill()
            each.wait()


def key_of(cluster: t.Any, kind: str) -> t.Any:
    return next(
        made for key, made in cluster.objects.items() if made["kind"] == kind and key[3].startswith("model-gateway")
    )


def copied(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)


def until(reached: t.Callable[[], bool]) -> None:
    end = time.monotonic() + START_S
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.2)


def status(port: int, path: str) -> int:
    with contextlib.suppress(OSError), contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, 5)) as made:
        made.request("GET", path)
        return made.getresponse().status
    return 0


def ask(port: int) -> str:
    """Stream an answer; return what is wrong with it."""
    try:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=90)) as made:
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
            made.request("POST", "/v1/chat/completions", json.dumps({"model": "one-name", **COUNT}), headers)
            said = made.getresponse()
            text = said.read().decode()
    except (OSError, http.client.HTTPException) as exc:
        return f"{type(exc).__name__}: {exc}"
    return fault(said.status, text)


def test_no_request_is_lost_while_both_groups_restart(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = StandIn(tmp_path)
    node = Node(site)
    role = {"name": "Serve", "ansible.builtin.include_role": {"name": "dgxspark.cluster.k8s_dgx"}}
    then = {"name": "Gateway", "ansible.builtin.include_role": {"name": "dgxspark.cluster.model_gateway"}}
    (tmp_path / "play.yml").write_text(json.dumps([{**harness.playbook()[0], "tasks": [role, then]}]), encoding="utf-8")
    answers: list[tuple[float, str]] = []
    ended = threading.Event()

    def asking() -> None:
        while not ended.is_set():
            answers.append((time.monotonic(), ask(node.service.server_address[1])))

    clients = [threading.Thread(target=asking) for _number in range(CLIENTS)]
    try:
        for overrides in ({}, SECOND):
            assert site.good(k8s_dgx_overrides=overrides, **GATEWAY) > 0
        until(lambda: all(status(port, "/health") == 200 for port in node.ports.values()))
        assert len(node.ports) == 2 and not ask(node.service.server_address[1])
        for each in clients:
            each.start()
        before = {name: uid for name, (uid, _engine) in node.heads.items()}
        begun = time.monotonic()
        for overrides in ({}, SECOND):
            assert site.good(k8s_dgx_overrides=overrides, k8s_dgx_restart=True, **GATEWAY) > 0
        took = time.monotonic() - begun
        after = {name: uid for name, (uid, _engine) in node.heads.items()}
        whole, all_of_them = [why for _when, why in answers if why], len(answers)
        # Engines that die by themselves break their streams, and this counts them.
        until(lambda: len(answers) >= all_of_them + CLIENTS)
        for _uid, engine in node.heads.values():
            engine.kill()
        ended.set()
        for each in clients:
            each.join()
    finally:
        ended.set()
        node.close()
        site.server.shutdown()
    with capsys.disabled():
        print(
            f"\n{len([why for _when, why in answers if why])} after a kill; {len(whole)} of {all_of_them} streams lost while two groups "
            f"restarted in {took:.0f} s; gateways: {len(node.gateways)}"
        )
    assert before.keys() == after.keys() == {"default", "second"} and all(
        before[name] != after[name] for name in before
    )
    assert whole == [] and all_of_them > 2 * CLIENTS
    assert [why for _when, why in answers if why], "what is lost is seen"


class Clients:
    """Users who ask for one stream after the other. ended: when each began and ended, and what was wrong with it."""

    def __init__(self, port: int) -> None:
        self.port, self.over = port, threading.Event()
        self.ended: list[tuple[float, float, str]] = []
        self.threads = [threading.Thread(target=self._ask) for _number in range(CLIENTS)]
        for each in self.threads:
            each.start()

    def _ask(self) -> None:
        while not self.over.is_set():
            began = time.monotonic()
            why = ask(self.port)
            self.ended.append((began, time.monotonic(), why))

    def during(self, what: t.Callable[[], t.Any]) -> tuple[int, list[str], float]:
        """Return how many streams ended while this was done, and shortly after it; what was wrong with some; and its seconds."""
        first, began = len(self.ended), time.monotonic()
        what()
        took = time.monotonic() - began
        # Those that were under way when it ended belong to it.
        until(lambda: len(self.ended) >= first + CLIENTS and min(self._last()) > began + took)
        seen = self.ended[first:]
        return len(seen), [why for _began, _ended, why in seen if why], took

    def _last(self) -> list[float]:
        return [began for began, _ended, _why in self.ended[-CLIENTS:]]

    def close(self) -> None:
        self.over.set()
        for each in self.threads:
            each.join()


def test_groups_yml_rolls_and_switches_without_a_loss_and_a_kill_costs_its_own_streams(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = kube_owner.Owner(tmp_path)
    site.choose("groups.yml")
    node = Node(site)
    common = {key: value for key, value in GATEWAY.items() if key != "k8s_platform_gpu_shares"} | {
        "k8s_dgx_replicas": 2
    }
    clients: Clients | None = None

    def groups(profile: str = FIRST, **more: t.Any) -> set[str]:
        """Run the playbook; return the uids of the heads, each of which answers again."""
        code, said, _changed = site.run(k8s_dgx_model_profile=profile, **common, **more)
        logs = "".join(each.read_text("utf-8")[-3000:] for each in tmp_path.rglob("groups/*.log"))
        assert code == 0, f"{said}\n{logs}"
        return {uid for uid, _engine in node.heads.values()}

    try:
        before = groups()
        until(lambda: len(node.ports) == 2 and all(status(port, "/health") == 200 for port in node.ports.values()))
        assert node.heads.keys() == {"default-1", "default-2"}
        clients = Clients(node.service.server_address[1])
        seen: list[set[str]] = [before]
        rolled = clients.during(lambda: seen.append(groups(k8s_dgx_restart=True)))
        switched = clients.during(lambda: seen.append(groups(SECOND_MODEL)))
        killed = clients.during(node.heads["default-1"][1].kill)
        after = clients.during(lambda: time.sleep(20))
    finally:
        if clients:
            clients.over.set()
        node.close()
        site.server.shutdown()
        if clients:
            clients.close()
    with capsys.disabled():
        for name, (count, lost, took) in {
            "rolled": rolled,
            "switched": switched,
            "one killed": killed,
            "afterwards": after,
        }.items():
            print(f"\ngroups.yml, {name}: {len(lost)} of {count} streams lost ({took:.0f} s)", end="")
        print(f"; gateways: {len(node.gateways)}")
    assert all(not old & new for old, new in itertools.pairwise(seen)), "each group's ranks are new ones"
    assert (rolled[1], switched[1], after[1]) == ([], [], [])
    assert 0 < len(killed[1]) <= CLIENTS
