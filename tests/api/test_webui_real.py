"""The page's environment in the real Open WebUI (PyPI: open-webui), before the real LiteLLM and a scripted engine.

DGXSPARK_OPEN_WEBUI names the `uvicorn` of its environment. Neither torch nor CUDA's libraries are needed there: documents are not embedded.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import re
import ssl
import subprocess
import time
import typing as t
import urllib.error
import urllib.request

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import webui as core
from ansible_collections.dgxspark.cluster.tests.support.gateway_stack import KEY, NOT_RUN, PROGRAM, Stack, until
from ansible_collections.dgxspark.cluster.tests.support.ports import free_port
from ansible_collections.dgxspark.cluster.tests.unit.tls import certified

Plain = dict[str, t.Any]
WEBUI = os.environ.get("DGXSPARK_OPEN_WEBUI", "")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not PROGRAM, reason=NOT_RUN),
    pytest.mark.skipif(not WEBUI, reason="not run: Open WebUI (open-webui of PyPI) is not there"),
]
OWNER, WORD = "owner@lan.example", "correct horse battery"


class Page:
    """Open WebUI as its Deployment starts it, with a folder for its volume."""

    def __init__(self, stack: Stack, folder: pathlib.Path, key: str) -> None:
        self.port, self.certificate = free_port(), stack.certificate
        tls = (
            [each.read_text("utf-8") for each in (self.certificate, self.certificate.with_suffix(".key"))]
            if self.certificate
            else []
        )
        asked = {"version": "0.12.4", "digest": "sha256:" + "1" * 64, "admin": OWNER}
        made = core.webui(asked, core.Keys(key, WORD, "5e551" * 8, *tls))
        hidden = {name: base64.b64decode(text).decode() for name, text in made["secret"]["data"].items()}
        files = folder / "files"
        files.mkdir(parents=True, exist_ok=True)
        for name in ("tls.crt", "tls.key"):
            (files / name).write_text(hidden.get(name, ""), encoding="utf-8")
        container = made["objects"][-1]["spec"]["template"]["spec"]["containers"][0]
        env = {
            each["name"]: hidden[each["valueFrom"]["secretKeyRef"]["key"]] if "valueFrom" in each else each["value"]
            for each in container["env"]
        }
        env = {name: value.replace(core.FILES, str(files)) for name, value in env.items()}
        env["OPENAI_API_BASE_URL"] = re.sub(r"//[^/]+", f"//127.0.0.1:{stack.port}", env["OPENAI_API_BASE_URL"])
        (folder / "data").mkdir(exist_ok=True)
        # FROM_INIT_PY: the wheel has its pages elsewhere than the image.
        env |= {
            "DATA_DIR": str(folder / "data"),
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "FROM_INIT_PY": "true",
        }
        command = [WEBUI, "open_webui.main:app", "--host", "127.0.0.1", "--port", str(self.port)]
        began = time.monotonic()
        with (folder / "log").open("ab") as log:
            self.running = subprocess.Popen(command, env=env, cwd=folder, stdout=log, stderr=log)
        self.token = ""
        ready = container["readinessProbe"]["httpGet"]["path"]
        until(lambda: self.running.poll() is not None or self.ask(ready)[0] == 200)
        assert self.running.poll() is None, (folder / "log").read_text("utf-8")[-2000:]
        self.started_s = time.monotonic() - began

    def ask(self, path: str, body: Plain | None = None) -> tuple[int, str]:
        """Return status and body of a request; 0 where nothing answers."""
        headers = {
            "Content-Type": "application/json",
            **({"Authorization": f"Bearer {self.token}"} if self.token else {}),
        }
        data = None if body is None else json.dumps(body).encode()
        url = f"http{'s' if self.certificate else ''}://127.0.0.1:{self.port}{path}"
        context = ssl.create_default_context(cafile=str(self.certificate)) if self.certificate else None
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, data, headers), timeout=120, context=context
            ) as said:
                return said.status, said.read().decode()
        except urllib.error.HTTPError as exc:
            return exc.code, exc.read().decode()
        except OSError:
            return 0, ""

    def sign_in(self) -> None:
        status, said = self.ask("/api/v1/auths/signin", {"email": OWNER, "password": WORD})
        assert status == 200, said
        self.token = json.loads(said)["token"]

    def answer(self, model: str) -> str:
        """Return the words of a streamed answer."""
        body = {"model": model, "stream": True, "max_tokens": 8, "messages": [{"role": "user", "content": "hi there"}]}
        status, said = self.ask("/api/chat/completions", body)
        assert status == 200, said
        chunks = [line[6:] for line in said.splitlines() if line.startswith("data: ") and line != "data: [DONE]"]
        return "".join(
            choice["delta"].get("content") or "" for each in chunks for choice in json.loads(each).get("choices", ())
        )

    def memory_mib(self) -> int:
        text = pathlib.Path(f"/proc/{self.running.pid}/status").read_text(encoding="utf-8")
        return int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) // 1024

    def close(self) -> None:
        self.running.kill()
        self.running.wait()


def test_the_owner_signs_in_sees_the_models_and_gets_an_answer(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also after the gateway got another key and a certificate: the accounts stay, and what the environment says counts."""
    stack = Stack(tmp_path / "gateway")
    page: Page | None = None
    told = []
    try:
        stack.folder.mkdir()
        stack.engine("a", "org/a", token_s=0.05)
        for key, secure in ((KEY, False), (KEY[::-1], True)):
            if secure:
                stack.running["gateway"].kill()
                stack.running["gateway"].wait()
                stack.certificate = tmp_path / "tls.crt"
                certified(stack.certificate)
            stack.gateway(key, a=["org/a", "gpt-4o"])
            page = Page(stack, tmp_path / "page", key)
            assert page.ask("/api/models")[0] in (401, 403)
            assert page.ask("/api/v1/auths/signin", {"email": OWNER, "password": "another password"})[0] in (
                400,
                401,
                403,
            )
            newcomer = {"name": "x", "email": "x@lan.example", "password": "a long password"}
            assert page.ask("/api/v1/auths/signup", newcomer)[0] == 403
            page.sign_in()
            assert json.loads(page.ask("/api/v1/auths/")[1])["role"] == "admin"
            names = [each["id"] for each in json.loads(page.ask("/api/models")[1])["data"]]
            assert {"org/a", "gpt-4o"} == set(names), names
            said = page.answer("org/a")
            assert said.strip(), said
            told.append(
                f"{'HTTPS' if secure else 'HTTP'}: ready after {page.started_s:.0f} s, {page.memory_mib()} MiB, said {said!r}"
            )
            page.close()
    finally:
        if page:
            page.close()
        stack.close()
    with capsys.disabled():
        print("\n" + "\n".join(told))
