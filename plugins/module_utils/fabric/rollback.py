# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change of netplan's files that goes back by itself unless it is confirmed.

This one file, which needs nothing but Python's standard library, does it in two places: the module `netplan_vf`
imports it, and a copy on the node is run as a program: `apply ID` (netplan apply, detached), `timer ID` (time is up)
and `boot` (the node went down in the middle).

While a change is unconfirmed, /var/lib/dgxspark/netplan has `pending` (its id), `journal.json` (the files as they were
and as they shall be, contents included), `program.py` (this file) and, once done, `apply.json` (what netplan said).
`pending` is what counts: it is written last and removed first. `last.json` tells how the last change ended if it went
back.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time
import typing as t

BASE = "/var/lib/dgxspark/netplan"
LOCK = "/run/dgxspark-netplan.lock"
UNIT = "dgxspark-netplan-rollback.service"
UNIT_PATH = f"/etc/systemd/system/{UNIT}"
WANTED_PATH = f"/etc/systemd/system/multi-user.target.wants/{UNIT}"
PYTHON = "/usr/bin/python3"
APPLY_LIMIT = 120.0  # seconds for netplan apply
LOCK_WAIT = 60.0  # seconds for another run's step to finish

# Early: networkd and NetworkManager start after network-pre.target. systemd has run netplan's generator before any
# unit, so what that made of the unconfirmed files is made anew.
UNIT_TEXT = f"""\
# Made by the Ansible module dgxspark.cluster.netplan_vf while a change of netplan is unconfirmed.
[Unit]
Description=Go back to the netplan files before an unconfirmed change
DefaultDependencies=no
ConditionPathExists={BASE}/pending
RequiresMountsFor={BASE} /etc/netplan
After=local-fs.target
Wants=network-pre.target
Before=network-pre.target systemd-networkd.service NetworkManager.service shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
ExecStart={PYTHON} -I -S {BASE}/program.py boot
TimeoutStartSec=120

[Install]
WantedBy=multi-user.target
"""


class RollbackError(Exception):
    """What could not be done, in plain words."""


class FileImage(t.NamedTuple):
    """A file's content with mode and owner; `data` is None for a file that is not there."""

    data: bytes | None
    mode: int = 0o600
    uid: int = 0
    gid: int = 0

    @property
    def sha256(self) -> str | None:
        """The content's digest in hexadecimal; None for a file that is not there."""
        return None if self.data is None else hashlib.sha256(self.data).hexdigest()

    def same(self, other: FileImage) -> bool:
        """Whether content, mode and owner are the same."""
        return self == other or (self.data is None and other.data is None)

    def to_json(self) -> dict[str, t.Any]:
        """Return a form that JSON can hold."""
        data = None if self.data is None else base64.b64encode(self.data).decode("ascii")
        return {"data": data, "mode": self.mode, "uid": self.uid, "gid": self.gid}

    @classmethod
    def from_json(cls, form: t.Mapping[str, t.Any]) -> FileImage:
        """Undo `to_json`."""
        data = None if form["data"] is None else base64.b64decode(form["data"])
        return cls(data, int(form["mode"]), int(form["uid"]), int(form["gid"]))


class Host:
    """The node as files and commands; tests put a tree of their own at `root` and answer commands themselves."""

    def __init__(self, root: str = "") -> None:
        self.root = root.rstrip("/")

    def path(self, path: str) -> pathlib.Path:
        """Return where a path of the node lies."""
        return pathlib.Path(self.root + path)

    def command(self, argv: t.Sequence[str], timeout: float = 60) -> tuple[int, str, str]:
        """Run a command; (127, "", why) where it cannot be run or takes longer than `timeout` seconds."""
        path = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
        environment = {**os.environ, "LC_ALL": "C", "LANGUAGE": "", "PATH": path}
        try:
            # without AnsibleModule, whose run_command sanity wants: this file is also a program on the node
            done = subprocess.run(  # pylint: disable=ansible-bad-function
                argv, capture_output=True, text=True, timeout=timeout, check=False, env=environment, errors="replace"
            )
        except (OSError, subprocess.TimeoutExpired) as exc:
            return 127, "", str(exc)
        return done.returncode, done.stdout, done.stderr

    def clock(self) -> float:
        """Return seconds since boot, which every process of the node agrees on."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def image(self, path: str) -> FileImage:
        """Read a file with mode and owner."""
        try:
            with self.path(path).open("rb") as file:
                stat = os.fstat(file.fileno())
                return FileImage(file.read(), stat.st_mode & 0o7777, stat.st_uid, stat.st_gid)
        except (FileNotFoundError, NotADirectoryError):
            return FileImage(None)

    def put(self, path: str, image: FileImage) -> None:
        """Make a file what the image says, in one step that survives a power cut; remove it for an empty image."""
        real = self.path(path)
        # One fixed name, which a killed run leaves for the next one; it does not end in .yaml, so netplan passes it by.
        temporary = real.with_name(f".{real.name}.dgxspark-new")
        if image.data is None:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                temporary.unlink(missing_ok=True)
                real.unlink()
                _sync(real.parent)
            return
        real.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(image.data)
            file.flush()
            os.fchmod(descriptor, image.mode)
            if os.geteuid() == 0:
                os.fchown(descriptor, image.uid, image.gid)
            os.fsync(descriptor)
        temporary.replace(real)
        _sync(real.parent)

    def text(self, name: str) -> str | None:
        """Return the text of a file in our folder; None where it is absent or empty."""
        data = self.image(f"{BASE}/{name}").data
        return data.decode("utf-8", "replace").strip() or None if data else None

    def document(self, name: str) -> dict[str, t.Any]:
        """Return the JSON object in a file of our folder; {} where it is absent or spoilt."""
        try:
            found = json.loads(self.text(name) or "{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def keep(self, name: str, text: str, mode: int = 0o600) -> None:
        """Write a file in our folder."""
        self.put(f"{BASE}/{name}", FileImage(text.encode(), mode, os.geteuid(), os.getegid()))

    @contextlib.contextmanager
    def lock(self) -> t.Iterator[None]:
        """Hold the lock that every step of a change takes; RollbackError when another holds it too long."""
        self.path(LOCK).parent.mkdir(parents=True, exist_ok=True)
        with self.path(LOCK).open("w", encoding="utf-8") as file:
            until = time.monotonic() + LOCK_WAIT
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise RollbackError(
                            f"{LOCK} has been held by another process for {LOCK_WAIT:g} s: another run is at work on "
                            "this node's netplan files."
                        ) from None
                    time.sleep(0.1)
            yield


def _sync(folder: pathlib.Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- a change -------------------------------------------------------------------------------------------------------


def timer_unit(identity: str) -> str:
    """Return the name of the transient timer of a change."""
    return f"dgxspark-netplan-timer-{identity}.timer"


def apply_unit(identity: str) -> str:
    """Return the name of the transient service that applies a change."""
    return f"dgxspark-netplan-apply-{identity}.service"


def prepare(
    host: Host,
    identity: str,
    changes: t.Mapping[str, FileImage],
    program: str,
    *,
    deadline: float,
    summary: str,
    connection: str | None = None,
) -> None:
    """Write down a change, so that it can go back whatever happens from here on. Nothing of it is done yet.

    deadline: on the host's clock. summary: what is changed, for messages. connection: over which this was asked for.
    """
    host.path(BASE).mkdir(mode=0o700, parents=True, exist_ok=True)
    host.path(BASE).chmod(0o700)
    for name in ("apply.json", "last.json"):
        host.put(f"{BASE}/{name}", FileImage(None))
    files = {path: {"before": host.image(path).to_json(), "after": image.to_json()} for path, image in changes.items()}
    journal = {"id": identity, "deadline": deadline, "summary": summary, "connection": connection, "files": files}
    host.keep("journal.json", json.dumps(journal))
    host.keep("program.py", program, 0o700)
    owner = (os.geteuid(), os.getegid())
    host.put(UNIT_PATH, FileImage(UNIT_TEXT.encode(), 0o644, *owner))
    wanted = host.path(WANTED_PATH)
    wanted.parent.mkdir(parents=True, exist_ok=True)
    wanted.unlink(missing_ok=True)
    wanted.symlink_to(UNIT_PATH)
    _sync(wanted.parent)
    host.keep("pending", identity + "\n")


def write(host: Host) -> None:
    """Write the files of the change that was prepared."""
    for path, pair in host.document("journal.json")["files"].items():
        host.put(path, FileImage.from_json(pair["after"]))


def unwritten(host: Host) -> list[str]:
    """Return the files of the change whose content, mode or owner is not what it shall be."""
    files = host.document("journal.json").get("files", {})
    return [path for path, pair in files.items() if not host.image(path).same(FileImage.from_json(pair["after"]))]


def forget(host: Host, *, last: t.Mapping[str, t.Any] | None = None) -> None:
    """End a change: remove all that was kept for it. `last`: what to keep about how it ended."""
    host.put(f"{BASE}/pending", FileImage(None))
    if last is None:
        host.put(f"{BASE}/last.json", FileImage(None))
    else:
        host.keep("last.json", json.dumps(last))
    for path in (WANTED_PATH, UNIT_PATH, *(f"{BASE}/{name}" for name in ("journal.json", "apply.json", "program.py"))):
        host.put(path, FileImage(None))
    for folder in (host.path(f"{BASE}/absorbed"), host.path(BASE), host.path(BASE).parent):
        with contextlib.suppress(OSError):  # not empty: something of ours or of another role is kept there
            folder.rmdir()


def apply(host: Host, identity: str) -> None:
    """Let netplan apply the files, and write down what it said."""
    rc, out, err = host.command(["netplan", "apply"], timeout=APPLY_LIMIT)
    if host.text("pending") == identity:
        host.keep("apply.json", json.dumps({"id": identity, "rc": rc, "said": (err or out).strip()[-4000:]}))


def roll_back(host: Host, identity: str, why: str, *, running: bool = True) -> dict[str, t.Any] | None:
    """Go back to the files before a change, and let netplan apply them. Call it with the lock held.

    running: False at boot, before the network: netplan then only generates. Returns how it ended, which is also kept
    as last.json; None where that change is not pending any more.
    """
    if host.text("pending") != identity:
        return None
    journal = host.document("journal.json")
    if running:
        host.command(["systemctl", "stop", apply_unit(identity), timer_unit(identity)])
    unwritten_back, failed = [], []
    for path, pair in journal.get("files", {}).items():
        try:
            host.put(path, FileImage.from_json(pair["before"]))
        except OSError as exc:
            unwritten_back.append(f"{path}: {exc.strerror}")
    rc, out, err = host.command(["netplan", "apply" if running else "generate"], timeout=APPLY_LIMIT)
    if rc != 0:
        failed.append(f"netplan {'apply' if running else 'generate'} said: {(err or out).strip()[-2000:]}")
    last = {"id": identity, "why": why, "summary": journal.get("summary", ""), "failed": unwritten_back + failed}
    if unwritten_back:  # the change stays pending, with all that the next try needs
        host.keep("last.json", json.dumps(last))
    else:
        forget(host, last=last)
    return last


def main(argv: t.Sequence[str], host: Host | None = None) -> int:
    """Run as a program on the node; the exit status is 1 where going back did not work out."""
    host = host or Host()
    what = argv[0] if argv else ""
    if what == "apply":
        apply(host, argv[1])
        return 0
    if what not in ("timer", "boot"):
        sys.stderr.write("usage: program.py apply ID | timer ID | boot\n")
        return 2
    with host.lock():
        identity = argv[1] if what == "timer" else host.text("pending") or ""
        last = roll_back(host, identity, what, running=what == "timer")
    return 1 if last and last["failed"] else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
