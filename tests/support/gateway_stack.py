"""Engines, and in front of them the real LiteLLM (PyPI: litellm[proxy], prisma) with the gateway's own files.

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
import ssl
import subprocess
import sys
import time
import typing as t
import urllib.parse

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import gateway as core
from ansible_collections.dgxspark.cluster.tests.support.ports import free_port
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT

PROGRAM = os.environ.get("DGXSPARK_LITELLM") or shutil.which("litellm")
NOT_RUN = "not run: litellm (litellm[proxy] and prisma of PyPI) is not there"
KEY = "gateway-" + "9fBz3" * 8
ENGINE = ROOT / "tests" / "stand_ins" / "scripted_engine.py"
START_S = 900


class Stack:
    """Engines, and the gateway in front of them with the files that the role gives it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.port = folder, free_port()
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.ports: dict[str, int] = {}
        self.certificate: pathlib.Path | None = None  # of the gateway, self-signed; its key is beside it

    def engine(self, name: str, model: str, token_s: float = 0.2) -> None:
        port = self.ports.setdefault(name, free_port())
        command = [sys.executable, str(ENGINE), "--model-path", model, "--port", str(port)]
        env = {**os.environ, "SCRIPTED": json.dumps({"token_s": token_s}), "SCRIPTED_LOAD_S": "0"}
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
        tls = [each.read_text("utf-8") for each in self._tls()]
        made = core.gateway(asked, served, core.Keys(key, {}, *tls), handler)
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

    def _tls(self) -> tuple[pathlib.Path, ...]:
        return (self.certificate, self.certificate.with_suffix(".key")) if self.certificate else ()

    def _connection(self, port: int, seconds: float = 60, probe: bool = False) -> http.client.HTTPConnection:
        """Return a connection that checks the gateway's certificate; a kubelet's probe does not."""
        if port != self.port or not self.certificate:
            return http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
        context = ssl.create_default_context(cafile=str(self.certificate))
        if probe:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection("127.0.0.1", port, timeout=seconds, context=context)

    def _status(self, port: int, path: str) -> int:
        with contextlib.suppress(OSError), contextlib.closing(self._connection(port, 5, True)) as made:
            made.request("GET", path)
            return made.getresponse().status
        return 0

    def ask(self, model: str, place: str = "chat/completions", key: str = KEY, **more: t.Any) -> tuple[int, str, float]:
        """Return status, body and seconds of a request."""
        body = {"model": model, "max_tokens": 4, "messages": [{"role": "user", "content": "hi there"}], **more}
        start = time.monotonic()
        with contextlib.closing(self._connection(self.port)) as made:
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
