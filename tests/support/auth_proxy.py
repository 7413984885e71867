"""The proxy in front of an engine, as processes."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.rank import auth_proxy
from ansible_collections.dgxspark.cluster.tests.support.ports import free_port
from ansible_collections.dgxspark.cluster.tests.unit.kube_ranks import PATIENCE

KEY = "k" + "9fB-_3" * 6


# Records what it is sent, answers in pieces as a stream does, and notes when the client disconnects.
ENGINE = """
import pathlib, socket, sys, threading, time
port, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
def serve(connection):
    seen = b""
    while b"\\r\\n\\r\\n" not in seen:
        seen += connection.recv(4096)
    with (folder / "seen").open("ab") as file:
        file.write(seen)
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n\\r\\n")
    if b"/endless" in seen:
        while connection.recv(4096):
            pass
        (folder / "left").touch()
    for number in range(3):
        connection.sendall(b"data: %d\\n\\n" % number)
        while not (folder / f"go-{number}").exists():
            time.sleep(0.01)
    connection.close()
listener = socket.create_server(("127.0.0.1", port))
(folder / "up").write_text(str(__import__("os").getpid()))
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


class AuthProxy:
    """A proxy with an engine behind it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.port, self.inner = folder, free_port(), free_port()
        (folder / "key").write_text(f"{KEY}\n")
        (folder / "key").chmod(0o400)
        (folder / "engine.py").write_text(ENGINE)
        self.process: subprocess.Popen[str] | None = None

    def start(self, *command: str, key: str | None = None) -> subprocess.Popen[str]:
        given = command or (sys.executable, str(self.folder / "engine.py"), str(self.inner), str(self.folder))
        self.process = subprocess.Popen(
            [sys.executable, str(auth_proxy.__file__), str(self.port), str(self.inner), *given], text=True, stderr=subprocess.PIPE,
            env={**os.environ, auth_proxy.KEY_FILE: key or str(self.folder / "key")}, start_new_session=True,
        )  # fmt: skip
        return self.process

    def up(self) -> AuthProxy:
        self.start()
        self.until("up")
        return self

    def until(self, name: str) -> None:
        until = time.monotonic() + PATIENCE
        while not (self.folder / name).exists():
            assert time.monotonic() < until, name
            time.sleep(0.02)

    def say(self, text: str) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        made.sendall(text.replace("\n", "\r\n").encode())
        return made

    def ask(self, text: str) -> str:
        for number in range(3):
            (self.folder / f"go-{number}").touch()
        with self.say(text) as made, made.makefile("rb") as stream:
            return stream.read().decode()

    def seen(self) -> str:
        place = self.folder / "seen"
        return place.read_text() if place.exists() else ""

    def close(self) -> None:
        """End what is left of its processes."""
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
