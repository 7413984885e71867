# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change of netplan's files that rolls back by itself unless it is confirmed.

Used in two places: the module `netplan_vf` imports it, and an archive on the node, with what it imports, runs as a program:
`guard ID` writes the files, lets netplan apply them and waits, and rolls back when the time is up; `boot` rolls back if the
node went down midway.

The guard is a process, not a systemd timer: `netplan apply` makes systemd reload, and each reload restarts a timer's
OnActiveSec=; during a reload, which takes a minute on a busy node, no timer fires at all.

While a change is unconfirmed, /var/lib/dgxspark/netplan contains `pending` (its id), `journal.json` (the files before and
as planned, with contents), `rollback.pyz` (the program) and, once applied, `apply.json` (netplan's result). `pending` is
decisive: it is written last and removed first. The outcomes of changes are kept in /run for later queries: another run
may have begun its own by then.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import time
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.files import atomic_write, sync, temporary
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.locks import lock

BASE = "/var/lib/dgxspark/netplan"
LOCK = "/run/dgxspark-netplan.lock"
ENDED = "/run/dgxspark-netplan-ended.json"
PROGRAM = f"{BASE}/rollback.pyz"
ENDS = 16  # number of changes whose outcome is kept
UNIT = "dgxspark-netplan-rollback.service"
UNIT_PATH = f"/etc/systemd/system/{UNIT}"
WANTED_PATH = f"/etc/systemd/system/multi-user.target.wants/{UNIT}"
PYTHON = "/usr/bin/python3"
GENERATE = "/usr/libexec/netplan/generate"
NOT_FOUND, TOO_LONG = 127, 124  # exit statuses, as in a shell and timeout(1)
NOT_RUN = -1000  # in the record of netplan's result: its files were not written, for that reason; else minus the errno
COMMAND_LIMIT = 300.0  # seconds for a command; a lab node on a busy machine takes minutes to reload systemd
LOCK_WAIT = 120.0  # seconds for another run's step to finish
PAUSE = 0.25  # seconds between polls
PROFILES = "/run/NetworkManager/system-connections"
AGAIN_S = 15.0  # seconds between looks for devices that NetworkManager has without their profile
AFTER_S = 300.0  # seconds for which that goes on after a rollback: a Wi-Fi was lost 8 s after it had come back

# Early: networkd and NetworkManager start after network-pre.target. systemd has run netplan's generator before any unit, so
# its output from the unconfirmed files is generated again.
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
ExecStart={PYTHON} -I -S {PROGRAM} boot
TimeoutStartSec=120

[Install]
WantedBy=multi-user.target
"""


class RollbackError(Exception):
    """What could not be done, in plain words."""


class Damaged(RollbackError):
    """A record of a change that cannot be read: nothing is restored by it, and everything is kept."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(
            f"{path}: {what}. So nothing was restored, and everything was kept. Compare /etc/netplan with your own copies, correct "
            f"it by hand, then remove {BASE}/pending and run again."
        )


class FileImage(t.NamedTuple):
    """A file's content with mode and owner; `data` is None for a missing file."""

    data: bytes | None
    mode: int = 0o600
    uid: int = 0
    gid: int = 0

    @property
    def sha256(self) -> str | None:
        """The content's digest in hexadecimal; None for a missing file."""
        return None if self.data is None else hashlib.sha256(self.data).hexdigest()

    def same(self, other: FileImage) -> bool:
        """Whether content, mode and owner are equal."""
        return self == other or (self.data is None and other.data is None)

    def to_json(self) -> dict[str, t.Any]:
        """Return a form for JSON."""
        data = None if self.data is None else base64.b64encode(self.data).decode("ascii")
        return {"data": data, "mode": self.mode, "uid": self.uid, "gid": self.gid, "sha256": self.sha256}

    @classmethod
    def from_json(cls, form: t.Mapping[str, t.Any]) -> FileImage:
        """Undo `to_json`. Raises ValueError, TypeError or KeyError for anything else."""
        data = None if form["data"] is None else base64.b64decode(form["data"], validate=True)
        made = cls(data, int(form["mode"]), int(form["uid"]), int(form["gid"]))
        if (
            form.get("sha256", made.sha256) != made.sha256
            or not 0 <= made.mode <= 0o7777
            or min(made.uid, made.gid) < 0
        ):
            raise ValueError("a file's content, mode or owner is damaged")
        return made


class Host:
    """The node as files and commands; tests replace `root` and answer commands themselves."""

    def __init__(self, root: str = "") -> None:
        self.root = root.rstrip("/")

    def path(self, path: str) -> pathlib.Path:
        """Return the real path of a path on the node."""
        return pathlib.Path(self.root + path)

    def command(self, argv: t.Sequence[str], timeout: float = COMMAND_LIMIT) -> tuple[int, str, str]:
        """Run a command; 127 if it does not exist, 124 if it takes longer than `timeout` seconds."""
        try:
            # without AnsibleModule's run_command, which sanity tests want: this is also a program on the node
            done = subprocess.run(  # pylint: disable=ansible-bad-function
                argv,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
                env=_environment(),
                errors="replace",
            )
        except subprocess.TimeoutExpired:
            return TOO_LONG, "", f"`{' '.join(argv)}` did not finish within {timeout:g} s"
        except OSError as exc:
            return NOT_FOUND, "", f"{argv[0]}: {exc.strerror}"
        return done.returncode, done.stdout, done.stderr

    def start(self, argv: t.Sequence[str], log: str) -> subprocess.Popen[bytes]:
        """Start a command in its own process group; its output goes to the file `log`."""
        with self.path(log).open("wb") as file:
            return subprocess.Popen(  # pylint: disable=ansible-bad-function,consider-using-with
                argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=_environment(), start_new_session=True
            )

    def generator(self) -> list[str]:
        """Return the generator's command: netplan's own program if it is known to be that.

        `netplan generate` runs the same, but also makes systemd and udev reload, even for another root.
        """
        known = self.path(GENERATE).exists() and not self.path(GENERATE).with_name("configure").exists()
        return [GENERATE] if known else ["netplan", "generate"]

    def clock(self) -> float:
        """Return seconds since boot, the same for every process of the node."""
        return time.monotonic()

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
        """Write a file atomically, in a way that survives a power cut; remove it for an empty image."""
        real = self.path(path)
        if image.data is None:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                for new in temporaries(path):
                    self.path(new).unlink(missing_ok=True)
                real.unlink()
                sync(str(real.parent))
            return
        real.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        try:
            atomic_write(str(real), image.data, image.mode, (image.uid, image.gid))
        except OSError as exc:
            raise OSError(exc.errno, exc.strerror, path) from exc

    def text(self, name: str) -> str | None:
        """Return the text of a file in our folder (or at an absolute path); None if it is missing or empty."""
        data = self.image(_place(name)).data
        return data.decode("utf-8", "replace").strip() or None if data else None

    def document(self, name: str) -> dict[str, t.Any]:
        """Return the JSON object in a file, found as by `text`; {} if it is missing or corrupt."""
        try:
            found = json.loads(self.text(name) or "{}")
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def keep(self, name: str, text: str, mode: int = 0o600) -> None:
        """Write a file in our folder."""
        self.put(_place(name), FileImage(text.encode(), mode, os.geteuid(), os.getegid()))

    @contextlib.contextmanager
    def lock(self, by: str | None = None, seconds: float | None = None) -> t.Iterator[None]:
        """Hold the lock that every step of a change takes; locks.Held if another process has it longer than this (LOCK_WAIT).

        by: this run in words, for others that wait.
        """
        seconds = LOCK_WAIT if seconds is None else seconds
        self.path(LOCK).parent.mkdir(parents=True, exist_ok=True)
        with lock(str(self.path(LOCK)), by or f"process {os.getpid()}", seconds, self.clock, self.sleep):
            yield


def _environment() -> dict[str, str]:
    path = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
    return {**os.environ, "LC_ALL": "C", "LANGUAGE": "", "PATH": path}


def _place(name: str) -> str:
    return name if name.startswith("/") else f"{BASE}/{name}"


def temporaries(path: str) -> tuple[str, str]:
    """Return where a killed run may have left a file half written, under its present and its former name."""
    return temporary(path), f"{temporary(path)}-new"


# What is kept while a change is unconfirmed, beside `pending`, which is removed first and written last. `program.py` is the
# program of a change that an earlier version of this collection began.
_TEMPORARY = ("journal.json", "started", "apply.log", "apply.json", pathlib.PurePath(PROGRAM).name, "program.py")
OWN = (f"{BASE}/pending", WANTED_PATH, UNIT_PATH, *(f"{BASE}/{name}" for name in _TEMPORARY), f"{BASE}/last.json")


def plain(said: str) -> str:
    """Return a program's output; of a traceback (netplan's) only the last line."""
    kept: list[str] = []
    inside = False
    for line in said.strip().splitlines():
        if line.startswith("Traceback (most recent call last)"):
            inside = True
        elif line.startswith(("During handling of the above", "The above exception was")):
            del kept[-1:]
        elif line and not (inside and line.startswith((" ", "\t"))):
            inside = False
            kept.append(line)
    return "\n".join(kept).strip()


class Journal(t.NamedTuple):
    """What is recorded of a change: its files before and as planned, by path, until when it may be confirmed, and whose run it is."""

    id: str
    deadline: float
    files: dict[str, tuple[FileImage, FileImage]]
    summary: str = ""
    connection: str | None = None
    by: str | None = None


def pending(host: Host) -> str | None:
    """Return the id of the pending change; `?` if the file that names it is damaged."""
    data = host.image(f"{BASE}/pending").data
    return None if data is None else data.decode("utf-8", "replace").strip() or "?"


def recorded(host: Host, identity: str) -> Journal:
    """Return the record of a change. Raises Damaged if it is not the whole record of that change."""
    path = f"{BASE}/journal.json"
    try:
        data = host.image(path).data
        if not data:
            raise Damaged(path, "the record of the pending change is empty or missing")
        found = json.loads(data)
        if found["id"] != identity:
            raise Damaged(path, f"it records another change than the pending one ({identity})")
        files = {
            str(name): (FileImage.from_json(pair["before"]), FileImage.from_json(pair["after"]))
            for name, pair in found["files"].items()
        }
        said = [found.get(key) for key in ("summary", "connection", "by")]
        strange = [name for name in files if not name.startswith("/") or ".." in name.split("/")]
        if strange or not all(each is None or isinstance(each, str) for each in said):
            raise ValueError("a path or a name is damaged")
        deadline = float(found["deadline"])
        if math.isnan(deadline):
            raise ValueError("no time")
        return Journal(identity, deadline, files, said[0] or "", said[1], said[2])
    except OSError as exc:
        raise Damaged(path, f"the record of the pending change cannot be read: {exc.strerror}") from exc
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as exc:
        raise Damaged(path, f"the record of the pending change is damaged ({type(exc).__name__})") from exc


def deadline_of(host: Host, identity: str) -> float:
    """Return until when a change may be confirmed, on the host's clock; 0 if its record is damaged."""
    try:
        return recorded(host, identity).deadline
    except Damaged:
        return 0.0


# --- a change -------------------------------------------------------------------------------------------------------


def guard_unit(identity: str) -> str:
    """Return the name of the transient service that applies and guards a change."""
    return f"dgxspark-netplan-{identity}.service"


def guard_command(identity: str) -> list[str]:
    """Return the command that starts the guard of a prepared change, detached."""
    how = ["--collect", "--quiet", "--no-block", "--property=Restart=on-failure", "--property=TimeoutStopSec=5"]
    return [
        *("systemd-run", *how, f"--unit={guard_unit(identity)}"),
        *(PYTHON, "-I", "-S", PROGRAM, "guard", identity),
    ]


class ChangeRequest(t.NamedTuple):
    """The change in words, the connection that requested it, and the requesting run in words."""

    summary: str
    connection: str | None = None
    by: str | None = None


def prepare(
    host: Host,
    identity: str,
    changes: t.Mapping[str, FileImage],
    program: bytes,
    deadline: float,
    asked: ChangeRequest,
) -> None:
    """Record a change, so that it can be rolled back whatever happens from here on. Nothing is applied yet.

    program: this one's archive. deadline: on the host's clock. A failure to record leaves nothing behind, and raises OSError.
    """
    try:
        _write_down(host, identity, changes, program, deadline, asked)
    except OSError:
        with contextlib.suppress(OSError):
            forget(host)
        raise


def _write_down(
    host: Host, identity: str, changes: t.Mapping[str, FileImage], program: bytes, deadline: float, asked: ChangeRequest
) -> None:
    host.path(BASE).mkdir(mode=0o700, parents=True, exist_ok=True)
    host.path(BASE).chmod(0o700)
    for name in _TEMPORARY:
        host.put(f"{BASE}/{name}", FileImage(None))
    files = {path: {"before": host.image(path).to_json(), "after": image.to_json()} for path, image in changes.items()}
    journal = {"id": identity, "deadline": deadline, **asked._asdict(), "files": files}
    host.keep("journal.json", json.dumps(journal))
    owner = (os.geteuid(), os.getegid())
    host.put(PROGRAM, FileImage(program, 0o700, *owner))
    host.put(UNIT_PATH, FileImage(UNIT_TEXT.encode(), 0o644, *owner))
    wanted = host.path(WANTED_PATH)
    wanted.parent.mkdir(parents=True, exist_ok=True)
    wanted.unlink(missing_ok=True)
    wanted.symlink_to(UNIT_PATH)
    sync(str(wanted.parent))
    host.keep("pending", identity + "\n")


def write(host: Host, identity: str) -> None:
    """Write the files of the prepared change. Raises Damaged, before any is written, if its record is."""
    for path, (_before, after) in recorded(host, identity).files.items():
        host.put(path, after)


def unwritten(host: Host, identity: str) -> list[str]:
    """Return the files of the change whose content, mode or owner is not as planned. Raises Damaged."""
    return [path for path, pair in recorded(host, identity).files.items() if not host.image(path).same(pair[1])]


def forget(host: Host) -> None:
    """End a change: remove everything that was kept for it."""
    for path in OWN:
        host.put(path, FileImage(None))
    for folder in (host.path(f"{BASE}/absorbed"), host.path(BASE), host.path(BASE).parent):
        with contextlib.suppress(OSError):  # not empty: it contains something of ours or of another role
            folder.rmdir()


def leftovers(host: Host) -> list[str]:
    """Return our files that exist although no change is pending: an interrupted run left them."""
    if pending(host):
        return []
    places = [*OWN, *(new for path in OWN for new in temporaries(path))]
    return [place for place in places if host.path(place).is_symlink() or host.path(place).exists()]


def who(journal: t.Mapping[str, t.Any]) -> str:
    """Return in words whose change a journal records."""
    connection = str(journal.get("connection") or "").partition(" ")[0]
    by = journal.get("by") or (f"a run from {connection}" if connection else "an unknown run")
    what = str(journal.get("summary") or "nothing yet").partition(". ")[0]  # what follows is not a change
    return f"{by}, which is changing {what}"


def ended(host: Host, identity: str) -> dict[str, t.Any]:
    """Return how a change ended (`state`: confirmed, rolled_back, or never: abandoned before it began); else {}."""
    end = host.document(ENDED).get(identity)
    return {"failed": [], "applied": False, "summary": "", **end} if isinstance(end, dict) else {}


def note(host: Host, identity: str, state: str, **how: t.Any) -> None:
    """Record how a change ended, for the run that asks for it."""
    ends = {name: end for name, end in host.document(ENDED).items() if name != identity}
    ends[identity] = {"state": state, **how}
    with contextlib.suppress(OSError):  # it is only used in a message
        host.keep(ENDED, json.dumps(dict(list(ends.items())[-ENDS:])))


def take_back(host: Host) -> bool:
    """Give devices that NetworkManager has without their profile the one that netplan has for them; return whether it has any.

    netplan takes their addresses away before it starts NetworkManager. A device that gets one in between, such as of a router's
    advertisement, stays "connected (externally)" without its own. And NetworkManager takes a Wi-Fi's password for wrong after one
    handshake that came too late, and does not try again. Either way a management interface is cut off for good.
    """
    states: dict[str, str] = {}
    for file in (profiles := sorted(host.path(PROFILES).glob("netplan-*"))):
        if not states:
            host.command(["systemctl", "start", "NetworkManager.service"])  # netplan does not wait for it
            told = host.command(["nmcli", "-t", "-f", "DEVICE,STATE", "device"])[1].splitlines()
            states = dict(line.rsplit(":", 1) for line in told if ":" in line)
        keys = dict(x.split("=", 1) for x in (host.text(f"{PROFILES}/{file.name}") or "").splitlines() if "=" in x)
        name = keys.get("interface-name", "")
        if states.get(name, "").endswith(("disconnected", "(externally)")):
            host.command(["nmcli", "--wait", "30", "connection", "up", "id", keys.get("id", name), "ifname", name])
            states = {}  # a device may have several profiles
    return bool(profiles)


def roll_back(host: Host, identity: str, why: str, by: str = "module") -> dict[str, t.Any] | None:
    """Restore the files from before a change, and let netplan apply them. Call it with the lock held.

    by: `module`, `guard`, or `boot` (before the network: netplan then only generates). Returns how it ended, which is
    also recorded; None if that change is no longer pending. A damaged record is a failure that restores, applies and removes
    nothing.
    """
    if pending(host) != identity:
        return None
    done = host.document("apply.json").get("id") == identity
    try:
        journal = recorded(host, identity)
    except Damaged as exc:
        return {"id": identity, "why": why, "applied": done, "summary": "", "failed": [str(exc)]}
    if by == "module":
        host.command(["systemctl", "stop", guard_unit(identity)])
    unwritten_back, failed = [], []
    for path, (before, _after) in journal.files.items():
        try:
            host.put(path, before)
        except OSError as exc:
            unwritten_back.append(f"{path}: {exc.strerror}")
    command = host.generator() if by == "boot" else ["netplan", "apply"]
    rc, out, err = host.command(command)
    if by != "boot":
        take_back(host)
    if rc != 0:
        failed.append(f"`{' '.join(command)}` said: {plain(err or out)[-2000:]}")
    last = {
        "id": identity,
        "why": why,
        "applied": done,
        "summary": journal.summary,
        "failed": unwritten_back + failed,
    }
    if unwritten_back:  # the change stays pending, with everything that the next try needs
        return last
    note(host, identity, "rolled_back", **last)
    forget(host)
    return last


def result(host: Host, identity: str) -> tuple[int, str] | None:
    """Return netplan's exit status and output for a change; None as long as there is none, or if it cannot be read."""
    said = host.document("apply.json")
    if said.get("id") != identity or not isinstance(said.get("rc"), int):
        return None
    return said["rc"], str(said.get("said", ""))


def applied(host: Host, identity: str, rc: int, said: str) -> None:
    """Record the result of writing and applying the files of a change."""
    host.keep("apply.json", json.dumps({"id": identity, "rc": rc, "said": said[-4000:]}))


def guard(host: Host, identity: str) -> bool:
    """Make a change and let netplan apply it, then wait until it is confirmed, or roll back when its time is up.

    Returns whether all went well. A guard that is restarted after a crash only waits.
    """
    process = None
    if pending(host) == identity and host.text("started") is None:
        host.keep("started", identity)
        try:
            write(host, identity)
            process = host.start(["netplan", "apply"], f"{BASE}/apply.log")
        except OSError as exc:
            applied(host, identity, -(exc.errno or 1), f"{exc.filename or exc.filename2 or 'a file'}: {exc.strerror}")
        except Damaged as exc:
            applied(host, identity, NOT_RUN, str(exc))
    deadline, again = deadline_of(host, identity), 0.0
    while pending(host) == identity and host.clock() < deadline:
        rc = process.poll() if process else None
        if rc is not None or (process is None and host.clock() > again):
            take_back(host)
            again = host.clock() + AGAIN_S
        if rc is not None:
            applied(host, identity, rc, host.text("apply.log") or "")
            process = None
        host.sleep(PAUSE)
    if process and process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    well, until = time_is_up(host, identity), host.clock() + AFTER_S
    rolled_back = ended(host, identity).get("state") == "rolled_back"
    while rolled_back and not pending(host) and host.clock() < until and take_back(host):
        host.sleep(AGAIN_S)
    return well


def time_is_up(host: Host, identity: str, by: str = "guard") -> bool:
    """Roll back if the change is still unconfirmed; returns whether that succeeded."""
    with host.lock("the rollback of an unconfirmed change"):
        last = roll_back(host, identity, by, by)
    for failure in last["failed"] if last else ():
        sys.stderr.write(f"{failure}\n")
    return not (last and last["failed"])


def main(argv: t.Sequence[str], host: Host | None = None) -> int:
    """Run as a program on the node; the exit status is 1 if the rollback failed."""
    host = host or Host()
    if list(argv[:1]) == ["guard"] and len(argv) == 2:
        return 0 if guard(host, argv[1]) else 1
    if list(argv) == ["boot"]:
        return 0 if time_is_up(host, pending(host) or "", "boot") else 1
    sys.stderr.write("usage: rollback.pyz guard ID | boot\n")
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
