"""A node whose netplan, systemd and clock are fakes: files are real, in a folder of the test."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import typing as t

import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import netplan
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric import rollback
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import PlannedFunction, PlannedHost, PlannedVf
from ansible_collections.dgxspark.cluster.tests.unit.fakes import FakeNode

CX7 = """\
network:
  version: 2
  ethernets:
    enp1s0f0np0:
      link-local: [ ipv4 ]
    enp1s0f1np1:
      link-local: [ ipv4 ]
"""
MANAGEMENT = """\
network:
  version: 2
  renderer: networkd
  ethernets:
    enP7s7:
      addresses: [10.0.2.15/24]
"""


def planned_host(vfs: int = 1) -> PlannedHost:
    """Two functions with this many VFs each."""
    functions = []
    for number, netdev in enumerate(("enp1s0f0np0", "enP2p1s0f0np0")):
        planned = tuple(
            PlannedVf(
                index=vf,
                purpose="serving",
                mac=f"02:d6:01:0{number}:00:0{vf}",
                address=f"10.100.{number * 8 + vf}.1",
                prefix=24,
                subnet=f"10.100.{number * 8 + vf}.0/24",
                mtu=9000,
            )
            for vf in range(vfs)
        )
        functions.append(PlannedFunction(f"p0f{number}", 0, number, "switch", netdev, None, 9000, planned))
    return PlannedHost("spark1", 1, True, tuple(functions))


def text_of(planned: PlannedHost, renderer: str | None = None) -> str:
    """The file's text, dumped here and not by the code under test."""
    return netplan.HEADER + yaml.safe_dump(netplan.render(planned, renderer), sort_keys=False)


class FakeHost(rollback.Host):
    """Commands are faked; `apply_answer` is the result of `netplan apply`, `hold` keeps it from being run at once."""

    def __init__(self, node: FakeNode) -> None:
        super().__init__(str(node.root))
        self.node = node
        self.now = 1000.0
        self.calls: list[list[str]] = []
        self.applied: list[dict[str, str]] = []  # the files of /etc/netplan at each apply
        self.apply_answer: tuple[int, str, str] = (0, "", "")
        self.generate_answer: tuple[int, str, str] | None = None
        self.timer: tuple[float, str] | None = None
        self.guard_works = True
        self.hold = False
        self.during_sleep: t.Callable[[], None] = lambda: None

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.during_sleep()
        self.pass_time()

    def pass_time(self, seconds: float = 0) -> None:
        """Let time pass; a timer that is due goes off."""
        self.now += seconds
        if self.timer and self.timer[0] <= self.now:
            identity = self.timer[1]
            self.timer = None
            assert rollback.time_is_up(self, identity)

    def files(self) -> dict[str, str]:
        """What is in /etc/netplan."""
        return {p.name: p.read_text() for p in sorted(self.path("/etc/netplan").iterdir())}

    def left(self) -> list[str]:
        """Every file left behind besides netplan's."""
        places = ("/var/lib/dgxspark", "/etc/systemd/system")
        found = [p for place in places if self.path(place).exists() for p in self.path(place).rglob("*")]
        return sorted(str(p.relative_to(self.node.root)) for p in found if p.is_symlink() or p.is_file())

    def command(self, argv: t.Sequence[str], timeout: float = 60) -> tuple[int, str, str]:
        words = list(argv)
        self.calls.append(words)
        if words[:2] == ["netplan", "apply"]:
            self.applied.append(self.files())
            return self.apply_answer
        if words[:2] == ["netplan", "generate"]:
            if self.generate_answer is not None or "--root-dir" not in words:
                return self.generate_answer or (0, "", "")
            if shutil.which("netplan"):
                done = subprocess.run(words, capture_output=True, text=True, check=False)
                return done.returncode, done.stdout, done.stderr
            return 0, "", ""
        if words[0] == "systemd-run":
            if not self.guard_works:
                return 1, "", "Failed to start transient service unit"
            identity = words[-1]
            self.timer = (journal(self)["deadline"], identity)
            if not self.hold:  # what the guard does until it waits
                try:
                    rollback.write(self, identity)
                except OSError as exc:
                    rollback.applied(self, identity, -(exc.errno or 1), f"{exc.filename}: {exc.strerror}")
                    return 0, "", ""
                self.applied.append(self.files())
                rc, _out, said = self.apply_answer
                rollback.applied(self, identity, rc, said)
            return 0, "", ""
        if words[:2] == ["systemctl", "is-active"]:
            return (0 if self.timer else 3), "", ""
        if words[:2] == ["systemctl", "stop"]:
            if self.timer and rollback.guard_unit(self.timer[1]) in words:
                self.timer = None
            return 0, "", ""
        return self.node.run(words)


def put(root: pathlib.Path, path: str, text: str, mode: int = 0o600) -> pathlib.Path:
    """Write a file of the node."""
    file = pathlib.Path(f"{root}{path}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return file


def journal(host: FakeHost) -> dict[str, t.Any]:
    """The journal of the pending change."""
    return t.cast("dict[str, t.Any]", json.loads(host.path(f"{rollback.BASE}/journal.json").read_text()))
