"""Real containerds for tests: each with root, state and socket of its own, in a mount and network namespace of their own.

A registry (the stand-in of tests/stand_ins) is on that namespace's loopback. Debian's containerd does; `DGXSPARK_CONTAINERD` names
the folder of another one's `containerd` and `ctr`.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import time
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.images import containerd
from ansible_collections.dgxspark.cluster.tests.stand_ins import registry

_CONFIG = """version = 2
root = "{folder}/root"
state = "{folder}/state"
[grpc]
address = "{folder}/sock"
[plugins."io.containerd.grpc.v1.cri"]
disable_tcp_service = true
[plugins."io.containerd.internal.v1.opt"]
path = "{folder}/opt"
"""
PORT = 5000


def why_not() -> str:
    """Return why no real containerd can be run here; empty where it can."""
    if os.geteuid() != 0:
        return "not run: a containerd of its own needs root"
    if not all(_program(name) for name in ("containerd", "ctr")):
        return "not run: no containerd here (Debian's package, or DGXSPARK_CONTAINERD)"
    tried = subprocess.run(["unshare", "-m", "-n", "ip", "link", "set", "lo", "up"], check=False, capture_output=True)
    return "" if tried.returncode == 0 else "not run: no namespaces here"


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("DGXSPARK_CONTAINERD") or None)


class Room:
    """A namespace with a registry and some nodes."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.processes = [subprocess.Popen(["unshare", "-m", "-n", "sleep", "3600"], start_new_session=True)]
        own = pathlib.Path(f"/proc/{self.processes[0].pid}/ns/net")
        self._until(lambda: own.readlink() != pathlib.Path("/proc/self/ns/net").readlink())
        self.enter = ["nsenter", "-t", str(self.processes[0].pid), "-m", "-n"]
        subprocess.run([*self.enter, "ip", "link", "set", "lo", "up"], check=True)
        # The program as a whole, so that a test's node looks like one: a path that can be given as ctr.
        self.ctr = folder / "ctr"
        self.ctr.write_text(f'#!/bin/sh\nexec {" ".join(self.enter)} {_program("ctr")} "$@"\n', encoding="utf-8")
        self.ctr.chmod(0o755)

    def _until(self, there: t.Callable[[], bool]) -> None:
        for _again in range(600):
            if there():
                return
            time.sleep(0.05)
        raise AssertionError("it did not come up")

    def _start(self, *argv: str) -> None:
        log = (self.folder / f"{len(self.processes)}.log").open("wb")
        ran = subprocess.Popen([*self.enter, *argv], stdout=log, stderr=log, start_new_session=True)
        self.processes.append(ran)

    def registry(self) -> pathlib.Path:
        """Serve a folder (registry.lay fills it) as 127.0.0.1:5000."""
        self._start(sys.executable, registry.__file__, str(PORT), str(self.folder / "registry"))
        return self.folder / "registry"

    def address(self, name: str) -> str:
        """Return a node's socket."""
        return str(self.folder / name / "sock")

    def node(self, name: str) -> containerd.Containerd:
        """Start a containerd."""
        place = self.folder / name
        place.mkdir()
        (place / "config.toml").write_text(_CONFIG.format(folder=place), encoding="utf-8")
        self._start(str(_program("containerd")), "--config", str(place / "config.toml"))
        made = containerd.find(str(self.ctr), self.address(name), str(place / "root"))
        self._until(pathlib.Path(self.address(name)).exists)
        made.run(["version"])
        return made

    def close(self) -> None:
        """End everything."""
        for process in reversed(self.processes):
            process.kill()
            process.wait()
