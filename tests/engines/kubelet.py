"""A stand-in for the kubelet: it runs a rendered pod of one container as a process, runs its probes, and restarts it.

Imitated, after the sources of Kubernetes 1.37 (pkg/kubelet/prober, and the restart back-off): the pod's own command, environment,
volumes, HTTP probes with their periods and thresholds, the termination grace period. Not imitated: images, cgroups, namespaces, init
containers, other kinds of probes, events. What the pod mounts at /x is at ROOT/x, so such paths in its command and environment get
that prefix.
"""

from __future__ import annotations

import base64
import os
import pathlib
import signal
import subprocess
import threading
import time
import typing as t
import urllib.error
import urllib.request

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs import load_guard
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.pod import PROGRAMS
from ansible_collections.dgxspark.cluster.tests.unit.kube_ranks import listening

Plain = dict[str, t.Any]
BACK_OFF_S, BACK_OFF_MOST_S = 10, 300  # the kubelet's own, from the second restart on


class Pod:
    """A pod. objects: all rendered ones, for its ConfigMaps and Secrets; path: PATH for the image's programs."""

    def __init__(self, template: Plain, objects: t.Sequence[Plain], root: pathlib.Path, path: str) -> None:
        self.root, self.path = root, path
        spec = template["spec"]
        (self.container,) = spec["containers"]
        self.grace_s = spec["terminationGracePeriodSeconds"]
        self.mounts = [mount["mountPath"] for mount in self.container["volumeMounts"]]
        (root / "dev").mkdir(parents=True)
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for mount in self.container["volumeMounts"]:
            self._mount(root / mount["mountPath"].lstrip("/"), volumes[mount["name"]], objects)
        self.guard = listening(root / load_guard.FOLDER.lstrip("/"))
        self.log = root / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self.events: list[tuple[float, str]] = []
        self.is_ready = False
        self.restarts = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _mount(self, place: pathlib.Path, volume: Plain, objects: t.Sequence[Plain]) -> None:
        place.mkdir(parents=True, exist_ok=True)
        for kind, named in (("configMap", "name"), ("secret", "secretName")):
            if kind in volume:
                (source,) = (
                    each
                    for each in objects
                    if each["kind"].lower() == kind.lower() and each["metadata"]["name"] == volume[kind][named]
                )
                items = {item["key"]: item for item in volume[kind].get("items", ())}
                for key, text in source["data"].items():
                    item = items.get(key, {"path": key})
                    here = self.placed(text) if key.endswith(".json") else text
                    data = base64.b64decode(text) if kind == "secret" else here.encode()
                    file = os.open(place / item["path"], os.O_WRONLY | os.O_CREAT, 0)
                    os.fchmod(file, item.get("mode", volume[kind].get("defaultMode", 0o644)))
                    os.write(file, data)
                    os.close(file)

    def placed(self, text: str) -> str:
        """Return a supervisor's configuration with the pod's programs where they are on this machine: below ROOT too."""
        return text.replace(f'"{PROGRAMS}/', f'"{self.root}{PROGRAMS}/')

    def inside(self, text: str) -> str:
        """Return a mounted path of the pod as its path on this machine; any other text unchanged."""
        mounted = any(text == mount or text.startswith(f"{mount}/") for mount in self.mounts)
        return f"{self.root}{text}" if mounted else text

    def environment(self) -> dict[str, str]:
        """Return all that the container's process 1 gets."""
        own = {each["name"]: self.inside(each["value"]) for each in self.container["env"]}
        return {"PATH": self.path, "HOME": str(self.root), "LANG": "C.UTF-8", **own}

    def command(self) -> list[str]:
        """Return the container's command; the supervisor's own second argument is the root of the pod's files."""
        return [*(self.inside(word) for word in self.container["command"]), str(self.root)]

    def signal(self, number: int) -> None:
        """Send a signal to the container's process 1."""
        assert self.process
        os.kill(self.process.pid, number)

    def fetch(self, request: urllib.request.Request, timeout: float) -> tuple[int, str]:
        """Ask the pod over HTTP; return status and text. OSError if there is no answer."""
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as exc:
            return exc.code, exc.read().decode()

    # --- what tests ask -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Run it until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Delete the pod."""
        self._over.set()
        self._thread.join()

    def wait(self, event: str, patience_s: float, count: int = 1) -> float:
        """Wait for an event's n-th time; return when that was."""
        until = time.monotonic() + patience_s
        while len(found := [at for at, what in self.events if what.startswith(event)]) < count:
            assert time.monotonic() < until, f"{event}: not within {patience_s} s: {self.events}\n{self.tail()}"
            time.sleep(0.1)
        return found[count - 1]

    def tail(self, lines: int = 40) -> str:
        """Return the end of the container's log."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def last_word(self) -> str:
        """Return the container's termination message."""
        return (self.root / "dev/termination-log").read_text(encoding="utf-8")

    # --- what the kubelet does --------------------------------------------------------------------------------------------

    def _say(self, what: str) -> None:
        self.events.append((time.monotonic(), what))

    def _ask(self, name: str) -> tuple[bool, str]:
        probe = self.container[name]
        request = probe["httpGet"]
        # The kubelet probes the pod's address; this pod is on the host's network, so loopback will do.
        url = f"http://127.0.0.1:{request['port']}{request['path']}"
        try:
            status, text = self.fetch(urllib.request.Request(url), probe["timeoutSeconds"])
        except OSError as exc:
            return False, str(exc)
        return 200 <= status < 400, text.strip()

    def _run(self) -> None:
        while not self._over.is_set():
            self._once()
            self._ready(False, "its container ended")
            if self.restarts:
                self._over.wait(min(BACK_OFF_S * 2 ** (self.restarts - 1), BACK_OFF_MOST_S))
            self.restarts += 1

    def _once(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), env=self.environment(), cwd=self.root, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip
        self._say("started")
        failed = dict.fromkeys(("startupProbe", "readinessProbe", "livenessProbe"), 0)
        started = False
        due = time.monotonic()
        while self.process.poll() is None:
            if self._over.is_set():
                self._end(self.process)
                break
            if time.monotonic() >= due:
                due += self.container["startupProbe"]["periodSeconds"]
                for name in ("readinessProbe", "livenessProbe") if started else ("startupProbe",):
                    good, why = self._ask(name)
                    failed[name] = 0 if good else failed[name] + 1
                    over = failed[name] >= self.container[name].get("failureThreshold", 3)
                    if name == "startupProbe" and good:
                        started, due = True, time.monotonic()
                    if name == "readinessProbe" and (good or over):
                        self._ready(good, why)
                    elif over:
                        self._say(f"killed for its {name}: {why}")
                        self._end(self.process)
            time.sleep(0.05)
        self._say(f"ended with {self.process.returncode}")

    def _ready(self, good: bool, why: str) -> None:
        if good != self.is_ready:
            self.is_ready = good
            self._say("ready" if good else f"not ready: {why}")

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        self.signal(signal.SIGTERM)
        try:
            process.wait(self.grace_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
