"""A pod in namespaces of its own: what it mounts is at the pod's own paths, and its rails are interfaces with the planned addresses.

Two such pods are two nodes to an engine: another host name, another network, another /dev/shm. The namespaces of network and host
name outlive a restart of the container, as they do under Kubernetes. Needs root, and `unshare`, `nsenter` and `ip`.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import socket
import subprocess
import threading
import time
import typing as t
import urllib.request

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs import load_guard
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.rank.preflight import ARP
from ansible_collections.dgxspark.cluster.tests.engines.kubelet import Plain, Pod
from ansible_collections.dgxspark.cluster.tests.unit.namespaces import hold

T = t.TypeVar("T")
CLONE_NEWNET = 0x40000000
TERMINATION_LOG = "dev/termination-log"
POD_NETWORK = "10.42.0"  # eth0 of every pod; no address of a rail is in it
_ENTER = ctypes.CDLL(None, use_errno=True).setns


class Boxed(Pod):
    """node: the machine's folder for what pods mount from their node. more: environment besides the pod's own."""

    def __init__(
        self,
        template: Plain,
        objects: t.Sequence[Plain],
        root: pathlib.Path,
        node: pathlib.Path,
        rank: Plain,
        more: t.Mapping[str, str],
    ) -> None:
        self.binds: list[tuple[pathlib.Path, str, bool]] = []
        self.node, self.more = node, more
        super().__init__(template, objects, root, os.environ["PATH"])
        self.rank, self.rails = rank, rank["rails"]
        self.name = f"{rank['instance']}-{rank['host']}"
        (root / TERMINATION_LOG).touch()
        address = f"{POD_NETWORK}.{rank['rank'] + 1}" if rank["ranks"] > 1 else "127.0.0.1"
        (root / "hosts").write_text(f"127.0.0.1 localhost\n{address} {rank['host']}\n", encoding="ascii")
        self.pause = hold(f"ip link set lo up; echo {rank['host']} > /proc/sys/kernel/hostname", "--net", "--uts")

    def _mount(self, place: pathlib.Path, volume: Plain, objects: t.Sequence[Plain]) -> None:
        if "hostPath" in volume and volume["hostPath"]["path"] != load_guard.FOLDER:
            place = self.node / volume["hostPath"]["path"].lstrip("/")
        super()._mount(place, volume, objects)
        (mount,) = (each for each in self.container["volumeMounts"] if each["name"] == volume["name"])
        if "emptyDir" not in volume:
            self.binds.append((place, mount["mountPath"], mount.get("readOnly", False)))

    def placed(self, text: str) -> str:
        """Return the configuration as it is."""
        return text

    def inside(self, text: str) -> str:
        """Return the path as it is."""
        return text

    def environment(self) -> dict[str, str]:
        """Return the image's environment, which is this machine's, with the pod's own."""
        own = {each["name"]: each["value"] for each in self.container["env"]}
        return {**os.environ, "HOME": str(self.root), "LANG": "C.UTF-8", **self.more, **own}

    def command(self) -> list[str]:
        """Return the container's command, as process 1 of its namespaces."""
        # A sysfs of its own: the machine's shows the machine's interfaces.
        lines = ["set -e", "mount -t sysfs sysfs /sys", "mount -t tmpfs shm /dev/shm"]
        binds = [
            *self.binds,
            (self.root / TERMINATION_LOG, f"/{TERMINATION_LOG}", False),
            (self.root / "hosts", "/etc/hosts", False),
        ]
        for source, place, read_only in binds:
            made = "touch" if source.is_file() else "mkdir -p"
            lines += [f"{made} {place}", f"mount --bind {source} {place}"]
            lines += [f"mount -o remount,bind,ro {place}"] if read_only else []
        enter = ["nsenter", "-t", str(self.pause.pid), "--net", "--uts", "--"]
        alone = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"]
        return [*enter, *alone, "sh", "-c", "\n".join([*lines, 'exec "$@"']), "sh", *self.container["command"]]

    def signal(self, number: int) -> None:
        """Send a signal to process 1 of the namespaces, the only child of what made them."""
        assert self.process
        pid = self.process.pid
        for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
            os.kill(int(child), number)

    def fetch(self, request: urllib.request.Request, timeout: float) -> tuple[int, str]:
        """Ask inside the pod's network."""
        return self._inside_network(lambda: super(Boxed, self).fetch(request, timeout))

    def connect(self, port: int) -> socket.socket:
        """Return a connection to a port of the pod, whose other end is this program wherever it is."""
        return self._inside_network(lambda: socket.create_connection(("127.0.0.1", port), 10))

    def _inside_network(self, do: t.Callable[[], T]) -> T:
        found: list[T] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                with pathlib.Path(f"/proc/{self.pause.pid}/ns/net").open("rb") as place:
                    if _ENTER(place.fileno(), CLONE_NEWNET):  # this thread alone
                        raise OSError(ctypes.get_errno(), "the pod's network cannot be entered")
                found.append(do())
            except BaseException as exc:
                failed.append(exc)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return found[0]

    def processes(self) -> dict[int, str]:
        """Return the processes of the pod by their number on this machine, with their titles."""
        assert self.process
        seen, waiting = {}, [self.process.pid]
        while waiting:
            pid = waiting.pop()
            try:
                children = [
                    int(each)
                    for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
                    for each in (task / "children").read_text(encoding="ascii").split()
                ]
                seen[pid] = (
                    pathlib.Path(f"/proc/{pid}/cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode(errors="replace")
                    .strip()
                )
            except OSError:
                continue
            waiting += children
        return seen

    def ended(self, since: float) -> tuple[float, str] | None:
        """Return when the container first ended after a time, and how; None if it did not."""
        return next(((at, what) for at, what in self.events if at > since and what.startswith("ended")), None)

    def close(self) -> None:
        """Delete the pod with its network."""
        if self._thread.is_alive():
            self.stop()
        self.pause.kill()
        self.pause.wait()


def wire(pods: t.Sequence[Boxed]) -> None:
    """Give two pods their networks: the cluster's, and a cable for each rail."""
    if len(pods) < 2:
        return
    first, second = pods
    for number, pod in enumerate(pods, 1):
        pod.rails = [
            *pod.rank["rails"],
            {"interface": "eth0", "address": f"{POD_NETWORK}.{number}", "prefix": 24, "mtu": 1500},
        ]
    for one, other in zip(first.rails, second.rails, strict=True):
        run(
            "ip", "link", "add", one["interface"], "netns", str(first.pause.pid), "type", "veth",
            "peer", "name", other["interface"], "netns", str(second.pause.pid),
        )  # fmt: skip
        for pod, rail in ((first, one), (second, other)):
            device = rail["interface"]
            lines = [f"echo {value} > /proc/sys/net/ipv4/conf/{device}/{name}" for name, value in ARP.items()]
            lines += [
                f"ip address add {rail['address']}/{rail['prefix']} dev {device}",
                f"ip link set {device} mtu {rail['mtu']} up",
            ]
            run("nsenter", "-t", str(pod.pause.pid), "--net", "--", "sh", "-ec", "\n".join(lines))


def run(*words: str) -> None:
    """Run a command, and raise its own words if it fails."""
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")


def until(good: t.Callable[[], t.Any], seconds: float, every: float = 0.1) -> t.Any:
    """Return what `good` returns once that is true; None after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        if found := good():
            return found
        if time.monotonic() > end:
            return None
        time.sleep(every)
