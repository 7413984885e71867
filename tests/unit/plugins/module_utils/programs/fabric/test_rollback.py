"""The guard of a change: it applies, waits, and goes back; with real files and a real process."""

from __future__ import annotations

import errno
import os
import pathlib
import sys
import threading
import time
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric import rollback
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric.rollback import FileImage, Host
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.locks import Held

PATH = "/etc/netplan/90.yaml"


class Node(Host):
    """`netplan apply` is a small Python program: `script`."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(str(root))
        self.script = "print('fine')"
        self.calls: list[list[str]] = []

    def command(self, argv: t.Sequence[str], timeout: float = 60) -> tuple[int, str, str]:
        self.calls.append(list(argv))
        return 0, "", ""

    def start(self, argv: t.Sequence[str], log: str) -> t.Any:
        self.calls.append(list(argv))
        return super().start([sys.executable, "-c", self.script], log)

    def prepared(self, seconds: float) -> None:
        """A change of two files is pending: one existed before, one did not."""
        self.put(PATH, FileImage(b"old", 0o640, os.geteuid(), os.getegid()))
        owner = (os.geteuid(), os.getegid())
        after = {PATH: FileImage(b"new", 0o600, *owner), "/etc/netplan/91.yaml": FileImage(b"more", 0o600, *owner)}
        rollback.prepare(self, "t1", after, b"", self.clock() + seconds, rollback.ChangeRequest("s"))

    def left(self) -> list[pathlib.Path]:
        return [*self.path("/var/lib/dgxspark").rglob("*"), *self.path("/etc/systemd/system").rglob("*.service")]

    def files(self) -> dict[str, bytes]:
        return {p.name: p.read_bytes() for p in self.path("/etc/netplan").iterdir()}


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def confirm_once_applied(node: Node) -> threading.Thread:
    def wait() -> None:
        while not node.document("apply.json"):
            time.sleep(0.02)
        with node.lock():
            rollback.forget(node)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_the_guard_of_a_confirmed_change_ends_and_leaves_it(node: Node) -> None:
    node.prepared(600)
    thread = confirm_once_applied(node)
    assert rollback.main(["guard", "t1"], node) == 0
    thread.join()
    assert node.files() == {"90.yaml": b"new", "91.yaml": b"more"}
    assert node.calls == [["netplan", "apply"]]


def test_the_guard_of_an_unconfirmed_change_goes_back(node: Node) -> None:
    node.prepared(0.6)
    assert rollback.main(["guard", "t1"], node) == 0
    assert node.files() == {"90.yaml": b"old"}
    assert node.path(PATH).stat().st_mode & 0o777 == 0o640
    assert node.calls == [["netplan", "apply"], ["netplan", "apply"]]
    assert rollback.ended(node, "t1")["state"] == "rolled_back"
    assert node.left() == []


def before_archives(node: Node) -> list[str]:
    """Make the pending change one of an earlier version: its program is one file, and its unit runs that. Returns its files."""
    node.path(rollback.PROGRAM).unlink()
    node.keep("program.py", "the earlier program", 0o700)
    unit = node.path(rollback.UNIT_PATH)
    unit.write_text(unit.read_text().replace(rollback.PROGRAM, f"{rollback.BASE}/program.py"))
    return [f"{rollback.BASE}/program.py", rollback.UNIT_PATH]


@pytest.mark.parametrize("by", ["module", "guard", "boot"])
def test_a_change_that_an_earlier_version_began_is_taken_back_whole(node: Node, by: str) -> None:
    node.prepared(600)
    before_archives(node)
    rollback.write(node, "t1")
    last = rollback.roll_back(node, "t1", "a test", by)
    assert last and not last["failed"]
    assert node.files() == {"90.yaml": b"old"} and node.left() == []


def test_what_a_killed_run_of_an_earlier_version_left_is_named_and_goes(node: Node) -> None:
    node.prepared(600)
    files = before_archives(node)
    half = f"{rollback.BASE}/.journal.json.dgxspark-new"
    node.path(half).write_bytes(b"ha")
    node.path(f"{rollback.BASE}/pending").unlink()
    assert {*files, half} <= set(rollback.leftovers(node))
    rollback.forget(node)
    assert rollback.leftovers(node) == [] and node.left() == []


def test_the_next_change_replaces_the_program_of_an_earlier_version(node: Node) -> None:
    node.prepared(600)
    before_archives(node)
    node.prepared(600)
    assert not node.path(f"{rollback.BASE}/program.py").exists()
    assert rollback.PROGRAM in node.path(rollback.UNIT_PATH).read_text()


TAKEN = ["nmcli", "--wait", "30", "connection", "up", "id", "Wired connection 1", "ifname", "enP7s7"]


class Managed(Node):
    """A node with NetworkManager; states: how it says that it has enP7s7, one look after the other, the last one for good."""

    def __init__(self, root: pathlib.Path, *states: str) -> None:
        super().__init__(root)
        self.states = list(states)
        profiles = self.path("/run/NetworkManager/system-connections")
        profiles.mkdir(parents=True)
        for name, device in {"Wired connection 1": "enP7s7", "netplan-dgx-p0f0": "enp1s0f0np0"}.items():
            text = f"[connection]\nid={name}\ntype=ethernet\ninterface-name={device}\n\n[ipv4]\nmethod=manual\n"
            (profiles / f"netplan-{device}.nmconnection").write_text(text)

    def command(self, argv: t.Sequence[str], timeout: float = 60) -> tuple[int, str, str]:
        super().command(argv, timeout)
        if "device" not in argv:
            return 0, "", ""
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return 0, f"enP7s7:{state}\nenp1s0f0np0:unavailable\nlo:connected (externally)\n", ""

    @property
    def ups(self) -> list[list[str]]:
        return [call for call in self.calls if "up" in call]


@pytest.mark.parametrize("state", ["connected (externally)", "connecting (externally)", "disconnected", "connected"])
def test_a_device_that_networkmanager_has_without_its_profile_gets_it_back(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """After the change, and after its rollback: each starts NetworkManager anew."""
    monkeypatch.setattr(rollback, "AFTER_S", 0)
    node = Managed(tmp_path, state)
    node.prepared(0.6)
    assert rollback.main(["guard", "t1"], node) == 0
    assert node.ups == ([TAKEN, TAKEN] if state != "connected" else [])
    asked = sum("device" in call for call in node.calls)
    assert asked == (4 if node.ups else 2), "once for all profiles, each time, and again where something was done"


def test_what_is_lost_later_is_taken_back_too_until_another_change_begins(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Wi-Fi whose handshake comes too late once it was connected; nobody but the node itself can mend it."""
    monkeypatch.setattr(rollback, "AFTER_S", 10)
    node = Managed(tmp_path, "connected", "connected", "disconnected", "connected", "disconnected")
    node.prepared(0.6)

    def sleep(_seconds: float) -> None:
        if rollback.ended(node, "t1") and len(node.ups) >= 3:
            node.keep("pending", "t2")
        time.sleep(0.02)

    node.sleep = sleep  # type: ignore[method-assign]
    began = time.monotonic()
    assert rollback.main(["guard", "t1"], node) == 0
    assert time.monotonic() - began < 9
    assert node.ups == [TAKEN] * 3
    assert node.files() == {"90.yaml": b"old"}


def test_after_a_confirmed_change_the_guard_looks_no_more(tmp_path: pathlib.Path) -> None:
    node = Managed(tmp_path, "connected", "disconnected")
    node.prepared(600)

    def sleep(_seconds: float) -> None:
        if node.document("apply.json"):
            rollback.note(node, "t1", "confirmed")
            rollback.forget(node)
        time.sleep(0.02)

    node.sleep = sleep  # type: ignore[method-assign]
    assert rollback.main(["guard", "t1"], node) == 0
    assert node.ups == []


def test_a_netplan_that_hangs_is_ended_and_taken_back(node: Node) -> None:
    node.script = "import time; time.sleep(600)"
    node.prepared(0.6)
    assert rollback.main(["guard", "t1"], node) == 0
    assert node.files() == {"90.yaml": b"old"}
    assert rollback.ended(node, "t1")["applied"] is False


def test_what_netplan_says_is_kept_for_the_one_who_asked(node: Node) -> None:
    node.script = "import sys; sys.exit('no such device')"
    node.prepared(600)
    seen: dict[str, t.Any] = {}

    def sleep(seconds: float) -> None:
        seen.update(node.document("apply.json"))
        if seen:
            rollback.forget(node)
        time.sleep(0.02)

    node.sleep = sleep  # type: ignore[method-assign]
    rollback.guard(node, "t1")
    assert (seen["rc"], seen["said"]) == (1, "no such device")


def test_a_guard_that_crashed_and_is_restarted_only_waits(node: Node) -> None:
    node.prepared(0.3)
    node.keep("started", "t1")
    assert rollback.main(["guard", "t1"], node) == 0
    assert node.files() == {"90.yaml": b"old"}
    assert node.calls == [["netplan", "apply"]], "the old files are applied, the new ones not again"


def test_the_guard_of_another_change_touches_nothing(node: Node) -> None:
    node.prepared(600)
    assert rollback.main(["guard", "t0"], node) == 0
    assert node.files() == {"90.yaml": b"old"}
    assert node.calls == []


def test_two_steps_never_run_at_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollback, "LOCK_WAIT", 0.3)
    with node.lock(), pytest.raises(Held, match=f"process {os.getpid()}"), node.lock():
        pass


def test_a_file_is_never_half_written(node: Node) -> None:
    """What a killed write leaves behind is not a .yaml file, and the next write removes it."""
    node.put(PATH, FileImage(b"old", 0o600, os.geteuid(), os.getegid()))
    (node.path(PATH).parent / ".90.yaml.dgxspark").write_bytes(b"ha")
    node.put(PATH, FileImage(b"new", 0o600, os.geteuid(), os.getegid()))
    assert node.files() == {"90.yaml": b"new"}


def test_the_generator_is_netplan_s_own_program_where_it_is_known(node: Node) -> None:
    assert node.generator() == ["netplan", "generate"]
    node.put(rollback.GENERATE, FileImage(b"", 0o755, os.geteuid(), os.getegid()))
    assert node.generator() == [rollback.GENERATE]


def test_commands_that_are_absent_or_take_too_long_are_told_apart(tmp_path: pathlib.Path) -> None:
    host = Host(str(tmp_path))
    assert host.command(["dgxspark-no-such-command"])[0] == rollback.NOT_FOUND
    assert host.command(["sleep", "30"], timeout=0.1)[0] == rollback.TOO_LONG


def test_a_disk_that_is_full_is_told_and_nothing_is_applied(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.prepared(0.6)

    def full(host: Host, identity: str) -> None:
        raise OSError(28, "No space left on device", PATH)

    monkeypatch.setattr(rollback, "write", full)
    seen: dict[str, t.Any] = {}

    def sleep(seconds: float) -> None:
        seen.update(node.document("apply.json"))
        time.sleep(0.05)

    node.sleep = sleep  # type: ignore[method-assign]
    assert rollback.guard(node, "t1")
    assert seen["rc"] == -errno.ENOSPC, "netplan has not run"
    assert "No space left" in seen["said"]
    assert PATH in seen["said"]
    assert node.calls == [["netplan", "apply"]], "only to go back"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("a: b\nc\n", "a: b\nc"),
        (
            "Traceback (most recent call last):\n"
            '  File "/usr/sbin/netplan", line 23, in <module>\n    netplan.main()\n    ~~~~~~~~~~~~^^\n'
            "netplan.NetplanException: Error in network definition: no such bond\n",
            "netplan.NetplanException: Error in network definition: no such bond",
        ),
        (
            "** (generate:12): WARNING **: x\nTraceback (most recent call last):\n  File 1\nKeyError: 1\n\n"
            "During handling of the above exception, another exception occurred:\n\n"
            "Traceback (most recent call last):\n  File 2\nOSError: [Errno 30] Read-only file system\n",
            "** (generate:12): WARNING **: x\nOSError: [Errno 30] Read-only file system",
        ),
    ],
)
def test_of_a_traceback_the_last_line_is_passed_on(said: str, kept: str) -> None:
    assert rollback.plain(said) == kept
