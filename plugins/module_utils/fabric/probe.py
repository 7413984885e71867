# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's side of verifying the fabric: run this end of RDMA tests with a peer that runs the other end.

The ends meet over the VF's own addresses, so no other network is needed. The server starts its program, waits until it
listens and only then lets the client go; the client ends the session when it is done. Everything has a deadline, and
every program runs under `timeout`, so that it ends even if this process is killed.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import TOO_LONG
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.arp_ping import error_name
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.counters import lost, read_counters
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.perftest import (
    PACKAGE,
    PROGRAMS,
    RdmaTest,
    argv,
    figures,
    last_words,
)
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.locks import Held, lock
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs

_READY, _FAILED = b"ready", b"failed "
_OURS, _OTHER = b"+", b"-"  # whether the server is of the same verify
LOCK = "/run/dgxspark-verify-{port}.lock"  # held by the server of a test: only one program can listen on the port


@dataclass(frozen=True, slots=True)
class RdmaAnswer:
    """The result of this end of a test.

    status: `ok`; `error` (the program failed); `hang` (it had to be killed); `no peer` (the other end never connected);
    `missing` (the program is not installed); `peer` (the other end could not start); `busy` (another verify went on). lost: the error counters of its HCA
    that increased meanwhile: RDMA retransmits what is lost, so a lossy wire is slow, but reports no error.
    """

    id: str
    role: str
    program: str
    status: t.Literal["ok", "error", "hang", "no peer", "missing", "peer", "busy"]
    message: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)


class Busy(Exception):
    """Another verify tests on one of the nodes, and goes on. The text says whose."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Times in seconds.

    meet: for the ends to meet. test: for one test once they have met. grace: for the other end to finish after this one,
    since the ends then exchange reports and close devices.
    """

    meet: float
    test: float
    grace: float = 5.0


def programs() -> dict[str, str | None]:
    """Return the path of each RDMA test program on the node, None for a missing one."""
    return {name: shutil.which(name) for names in PROGRAMS.values() for name in names}


def run_tests(tests: t.Sequence[RdmaTest], bounds: Bounds, sysfs: Sysfs | None = None) -> list[RdmaAnswer]:
    """Run this end of each test, all with one peer, one after the other; tests of one group run at the same time.

    Once a peer has not connected, further tests get less time to meet: an absent peer must not cost the full time for each
    test, and one that only started late still gets its chance.
    """
    answers: list[RdmaAnswer] = []
    for _name, group in itertools.groupby(enumerate(tests), key=lambda each: each[1].together or each[0]):
        absent = any(answer.status == "no peer" for answer in answers)
        within = replace(bounds, meet=bounds.meet / 4) if absent else bounds
        at_once = [test for _number, test in group]
        with ThreadPoolExecutor(len(at_once)) as pool:
            answers += pool.map(lambda test, within=within: _counted(test, within, sysfs or Sysfs()), at_once)
    return answers


def _counted(test: RdmaTest, bounds: Bounds, sysfs: Sysfs) -> RdmaAnswer:
    before = read_counters(sysfs, [test.hca])
    answer = _run(test, bounds)
    return replace(answer, lost=lost(before, read_counters(sysfs, [test.hca])))


def _run(test: RdmaTest, bounds: Bounds) -> RdmaAnswer:
    def say(status: t.Any, message: str = "", **found: t.Any) -> RdmaAnswer:
        return RdmaAnswer(test.id, test.role, test.program, status, message, **found)

    deadline = time.monotonic() + bounds.meet
    if not shutil.which(test.program):
        missing = f"{test.program} is not installed"
        if test.role == "server":
            with contextlib.suppress(OSError), _accept(test, deadline) as line:
                line.sendall(_FAILED + missing.encode())
        return say("missing", f"{missing}. Install it: apt install {PACKAGE.get(test.program, test.program)}")
    try:
        if test.role == "server":
            return _serve(test, deadline, bounds, say)
        return _call(test, deadline, bounds, say)
    except Busy as exc:
        return say("busy", f"another verify is testing there at the same time ({exc})")
    except TimeoutError:
        return say("no peer", f"no connection with {test.peer} on TCP port {test.port} within {bounds.meet:g} s")
    except OSError as exc:
        return say("no peer", f"no connection with {test.peer} on TCP port {test.port}: {error_name(exc)}")


def _serve(test: RdmaTest, deadline: float, bounds: Bounds, say: t.Callable[..., RdmaAnswer]) -> RdmaAnswer:
    with _accept(test, deadline) as line, _Program(test, bounds) as program:
        if not program.wait_listening(test.program_port):
            words = last_words(program.end()) or "it does not start listening"
            line.sendall(_FAILED + words.encode())
            return say("error", f"{test.program} (server): {words}")
        line.sendall(_READY)
        line.settimeout(bounds.test)
        with contextlib.suppress(OSError):
            line.recv(1)  # the client finished, or its connection ended
        ended = program.wait(bounds.grace)
        output = program.end()
        if ended == 0:
            return say("ok", figures=figures(test.program, output))
        if ended is None:
            return say("hang", f"{test.program} (server) had to be killed. {last_words(output)}".strip())
        return say("error", f"{test.program} (server): {last_words(output) or f'exit status {ended}'}")


def _call(test: RdmaTest, deadline: float, bounds: Bounds, say: t.Callable[..., RdmaAnswer]) -> RdmaAnswer:
    with _connect(test, deadline) as line:
        line.settimeout(bounds.test)
        word = line.recv(1024)
        if word != _READY:
            why = word.removeprefix(_FAILED).decode(errors="replace") or "the connection was closed"
            return say("peer", f"the server side could not start: {why}")
        with _Program(test, bounds) as program:
            ended = program.wait(bounds.test)
            output = program.end()
        if ended is None:
            return say("hang", f"{test.program} moved no data within {bounds.test:g} s. {last_words(output)}".strip())
        found = figures(test.program, output)
        if ended == 0 and found:
            return say("ok", figures=found)
        words = last_words(output) or "no output"
        return say("error", f"{test.program}: {words if ended else f'its figures cannot be read: {words}'}")


@contextlib.contextmanager
def _accept(test: RdmaTest, deadline: float) -> t.Iterator[socket.socket]:
    """Wait for the client on the VF's own address, in turn with another verify."""
    with _alone(test, deadline), socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((test.address, test.port))
        listening.listen(8)
        while True:
            listening.settimeout(max(0.01, deadline - time.monotonic()))
            line, (peer, _port) = listening.accept()
            if peer == test.peer and _same_run(line, test):
                break
            line.close()  # not the peer: a port scan, for example; or the peer, but for another verify
        with line:
            yield line


def _same_run(line: socket.socket, test: RdmaTest) -> bool:
    """Answer the client's first line, which names its verify, with ours."""
    with contextlib.suppress(OSError):
        line.settimeout(2.0)
        said = line.makefile("rb").readline(1000).rstrip(b"\n")
        line.sendall(_OURS if said == test.run.encode() else _OTHER + test.run.encode())
        line.settimeout(None)
        return said == test.run.encode()
    return False


@contextlib.contextmanager
def _alone(test: RdmaTest, deadline: float) -> t.Iterator[None]:
    """Wait until no other verify's program listens on the port. Raises Busy if that takes too long."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # without root, nothing can be agreed upon
            try:
                held.enter_context(lock(LOCK.format(port=test.port), test.run, deadline - time.monotonic()))
            except Held as exc:
                raise Busy(exc.who) from None
        yield


@contextlib.contextmanager
def _connect(test: RdmaTest, deadline: float) -> t.Iterator[socket.socket]:
    """Connect from the VF's own address; retry until our verify's server accepts or the deadline has passed."""
    other = ""
    while True:
        line = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            line.bind((test.address, 0))
            line.settimeout(min(2.0, max(0.01, deadline - time.monotonic())))
            line.connect((test.peer, test.port))
            line.sendall(test.run.encode() + b"\n")
            answer = line.recv(1)
            if answer == _OURS:
                break
            if answer == _OTHER:
                other = line.recv(1000).decode(errors="replace") or "unknown"
            raise ConnectionRefusedError(errno.ECONNREFUSED, "the server is not ours")
        except OSError:
            line.close()
            if time.monotonic() >= deadline:
                if other:
                    raise Busy(other) from None
                raise
            time.sleep(0.2)
    with line:
        yield line


class _Program:
    """A test program in its own process group, which ends with the `with` block at the latest."""

    def __init__(self, test: RdmaTest, bounds: Bounds) -> None:
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__; a pipe could fill up
        # `timeout` is the second guard, in case this process is killed.
        command = ["timeout", "-k", "1", f"{bounds.test + 2 * bounds.grace:g}", *argv(test)]
        self.process = subprocess.Popen(  # pylint: disable=ansible-bad-function
            command,
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "LC_ALL": "C"},
        )

    def __enter__(self) -> _Program:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._kill()
        self.output.close()

    def wait(self, seconds: float) -> int | None:
        """Return the exit status, None if the program does not end by itself: on a busy machine the second guard may act first."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        return None if status == TOO_LONG else status

    def wait_listening(self, port: int, seconds: float = 10.0) -> bool:
        """Wait until something listens on the TCP port; False if the program ends or takes too long."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            if _listens(port):
                return True
            time.sleep(0.05)
        return False

    def end(self) -> str:
        """End the program if it still runs, and return its output."""
        self._kill()
        self.output.seek(0)
        return self.output.read().decode(errors="replace")

    def _kill(self) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def _listens(port: int) -> bool:
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = pathlib.Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if len(words) > 3 and words[3] == "0A" and words[1].endswith(wanted):
                return True
    return False
