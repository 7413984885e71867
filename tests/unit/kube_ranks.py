"""Ranks as real processes on loopback: each with the supervisor and the preflight that its ConfigMap would hold."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import typing as t
import urllib.error
import urllib.request

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs import load_guard
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.programs import sources
from ansible_collections.dgxspark.cluster.tests.support.ports import free_port

Plain = dict[str, t.Any]
PATIENCE = 120  # seconds that a busy machine may take for any step; no test waits this long on purpose
BOUNDS = {"peers_s": PATIENCE, "load_s": PATIENCE, "beat_s": 0.2, "lost_s": 5, "hang_s": 20, "stop_s": 5}

# An engine in a few lines: the head serves enough of the API for the canary, and exits when told to.
ENGINE = """
import http.server, json, os, pathlib, sys, time
port, folder, rank = int(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
with (folder / f"starts-{rank}").open("a") as file:
    file.write(f"{os.getpid()}\\n")
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        if self.path == "/metrics":  # as vLLM's: still where nothing is done, and where nothing can be done
            done = (folder / "done").read_text() if (folder / "done").exists() else "0"
            self.answer(f'engine:tokens_created{{engine="0"}} {time.time()}\\nengine:tokens_total{{engine="0"}} {done}\\n', "text/plain")
        else:
            self.answer({"data": [{"id": "m"}]})
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        with (folder / "asked").open("a") as file:
            file.write("x")
        while (folder / "hung").exists():
            time.sleep(0.1)
        silent = (folder / "silent").exists()
        self.answer({"choices": [{"text": "" if silent else " 6 7"}], "usage": {"completion_tokens": 0 if silent else 2}})
    def answer(self, body, kind="application/json"):
        data = body.encode() if kind == "text/plain" else json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
if rank == "0":
    import threading
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
while True:
    if (folder / f"end-{rank}").exists():
        sys.exit(int((folder / f"end-{rank}").read_text()))
    time.sleep(0.05)
"""


def listening(folder: pathlib.Path) -> load_guard.Guard:
    """Return a node's memory guard, with its socket as systemd makes it."""
    folder.mkdir(parents=True, exist_ok=True)
    listener, handle = socket.socket(socket.AF_UNIX), os.open(folder, os.O_PATH | os.O_DIRECTORY)
    listener.bind(f"/proc/self/fd/{handle}/{load_guard.SOCKET}")
    os.close(handle)
    listener.listen()
    return load_guard.Guard({"floor_mib": 1, "interval_s": 1, "max_s": 600}, listener)


class Group:
    """Four ranks, or as many as wanted. Rank N listens at 127.0.1.N+1; `rails` makes the preflight look at that address."""

    def __init__(self, folder: pathlib.Path, ranks: int = 4, *, rails: bool = False, **changes: t.Any) -> None:
        self.folder, self.ranks, self.rails = folder, ranks, rails
        self.port, self.api = free_port(), free_port()
        for name, text in sources().items():
            (folder / name).write_text(text, encoding="utf-8")
        (folder / "engine.py").write_text(ENGINE, encoding="utf-8")
        self.processes: dict[int, subprocess.Popen[str]] = {}
        self.changes = changes
        self.guards: dict[int, load_guard.Guard] = {}
        for rank in range(ranks):
            self.configure(rank)

    def address(self, rank: int) -> str:
        return f"127.0.1.{rank + 1}"

    def configure(self, rank: int, **changes: t.Any) -> None:
        """Write a rank's configuration."""
        peers = [
            {"rank": r, "host": f"spark{r + 1}", "address": self.address(r)} for r in range(self.ranks) if r != rank
        ]
        rail = {"name": "p0f0v0", "interface": "net1", "address": self.address(rank), "prefix": 24, "mtu": 9000}
        config = {
            "instance": "default",
            "plan": "0123",
            "rank": rank,
            "ranks": self.ranks,
            "host": f"spark{rank + 1}",
            "listen": self.address(rank),
            "port": self.port,
            "head": self.address(0),
            "api": self.api,
            "argv": [sys.executable, str(self.folder / "engine.py"), str(self.api), str(self.folder), str(rank)],
            "before": [],
            "guard": {"folder": load_guard.FOLDER, "socket": load_guard.SOCKET, "name": f"serve-default-rank{rank}"},
            "work": [],
            "verbs": False,
            "rails": [{**rail, "hca": None, "peers": peers}] if self.rails else [],
            "bounds": BOUNDS,
        }
        config |= self.changes | changes
        root = self.folder / f"root-{rank}"
        (root / "dev").mkdir(parents=True, exist_ok=True)
        if rank not in self.guards:
            self.guards[rank] = listening(root / load_guard.FOLDER.lstrip("/"))
        for path, text in {
            "sys/class/net/net1/mtu": "9000",
            **{
                f"proc/sys/net/ipv4/conf/net1/{k}": v
                for k, v in (("arp_ignore", "1"), ("arp_announce", "2"), ("rp_filter", "2"))
            },
        }.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        (self.folder / f"rank{rank}.json").write_text(json.dumps(config), encoding="utf-8")

    def guarded(self, rank: int) -> list[str]:
        """Return the loads that the memory guard of a rank's node sees."""
        return self.guards[rank].look(time.monotonic())

    def start(self, *ranks: int) -> None:
        """Start ranks as the kubelet would start their containers."""
        for rank in ranks or range(self.ranks):
            command = [sys.executable, str(self.folder / "supervisor.py"), str(self.folder / f"rank{rank}.json")]
            with (self.folder / f"log-{rank}").open("a") as log:
                self.processes[rank] = subprocess.Popen(
                    [*command, str(self.folder / f"root-{rank}")], stderr=log, stdout=log, text=True
                )

    def probe(self, rank: int, path: str) -> tuple[int, str]:
        """Ask as a probe does; 0 where there is no answer."""
        try:
            with urllib.request.urlopen(f"http://{self.address(rank)}:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as exc:
            return exc.code, exc.read().decode()
        except OSError as exc:
            return 0, str(exc)

    def wait(self, *ranks: int, path: str = "/ready") -> None:
        """Wait until ranks are ready."""
        until = time.monotonic() + PATIENCE
        for rank in ranks or range(self.ranks):
            while self.probe(rank, path)[0] != 200:
                assert self.processes[rank].poll() is None, self.log(rank)
                assert time.monotonic() < until, self.log(rank)
                time.sleep(0.1)

    def ended(self, *ranks: int) -> list[int]:
        """Wait until ranks have ended; return their exit statuses."""
        return [self.processes[rank].wait(PATIENCE) for rank in (ranks or range(self.ranks))]

    def log(self, rank: int) -> str:
        return (self.folder / f"log-{rank}").read_text(encoding="utf-8")

    def last_word(self, rank: int) -> str:
        return (self.folder / f"root-{rank}/dev/termination-log").read_text(encoding="utf-8")

    def engines(self, rank: int, count: int = 0) -> list[int]:
        """Return the process ids of a rank's engines, in start order; wait until there are `count`."""
        until = time.monotonic() + PATIENCE
        while len(found := self._engines(rank)) < count:
            assert time.monotonic() < until, self.log(rank)
            time.sleep(0.05)
        return found

    def _engines(self, rank: int) -> list[int]:
        place = self.folder / f"starts-{rank}"
        return [int(line) for line in place.read_text().split()] if place.is_file() else []

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
        for rank in range(self.ranks):
            self.guards[rank].listener.close()
            for pid in self.engines(rank):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Whether a process runs (one that has ended and was not collected does not)."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
