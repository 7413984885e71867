# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start one rank and take it down with its group: process 1 of a rank's container.

It listens, runs the preflight and the patches, waits for all ranks, starts the engine, and ends when the engine or the group
ends. Ranks of an engine that lost one of them hang; so each worker keeps a TCP connection to the head's supervisor, over the
fabric. A supervisor that exits breaks it at once; a node or network that fails is noticed after `lost_s` without a heartbeat. The
head then tells the others why, and every rank stops its engine and exits with a status of its own, never 0: the kubelet restarts
the containers, and they form a group again. A new start never joins an old group, since the head admits ranks only before its own
engine starts.

`python3 supervisor.py RANK.json [ROOT]`, with RANK.json as in preflight.py, and
`{instance, plan, ranks, host, listen, port, head, api, argv, before, guard, work, bounds: {peers_s, load_s, beat_s, lost_s,
hang_s, stop_s}}`: `plan` is the checksum that all ranks must share, `head` the address of rank 0, `api` the API's port (on
the head), `before` a list of commands (patches) to run first, `guard` = `{folder, socket, name}` for the socket where the node's
memory guard accepts reports of loads, `work` the engine's metrics that change with every step it makes (none: its /health makes
a token). Seconds throughout. If the API has a key, DGXSPARK_API_KEY_FILE names its file.

Probes use HTTP on `port`: /started, /ready and /live answer 200 or 503 with the reason. The head is started and ready once
the engine's API has produced a token; a worker once the group is complete.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.rank import engine_api

# Exit status -> cause; 10 to 19 are the preflight's. An engine's own status is passed on, a signal as 128 + its number.
CAUSES = {
    30: "lost",  # another rank, or the path to it, is gone
    31: "plan",  # the head runs another plan
    32: "port",  # something else listens on the supervisor's port
    33: "ended",  # the engine ended by itself, with status 0
    34: "patches",
    35: "load",  # the API gave no token in time
    36: "hang",  # the API produced no token in time
    37: "program",  # the engine could not be started at all
}
STATUS = {cause: status for status, cause in CAUSES.items()}
TERMINATION_LOG = "/dev/termination-log"
LINE = 65536
# Simultaneous connections that have not identified themselves, and the seconds that each has to do so.
STRANGERS, STRANGER_S = 64, 5.0
QUESTION, ANSWER = b"?", b"!"  # first byte of a preflight's packet, and of its answer
FIRST_TO_GO = 1000  # the highest OOM score
BROKEN_STOP_S = 5.0  # for an engine to stop that hangs, or whose group is broken: nothing that it does is of use


class Ending(Exception):
    """The rank ends, with this status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def say(text: str) -> None:
    """Write a line to the container's log."""
    sys.stderr.write(f"supervisor: {text}\n")


class Rank:
    """State that all threads share: configuration, the reason to end, and the answers to probes."""

    def __init__(self, config: t.Mapping[str, t.Any]) -> None:
        self.config = config
        self.bounds: t.Mapping[str, float] = config["bounds"]
        self.lock = threading.Lock()
        self.ending: Ending | None = None
        self.whole = threading.Event()  # all ranks have met, and the engine may start
        self.serving = threading.Event()  # the API has produced a token: no rank of the group is loading
        self.doing = "preflight"
        self.api = engine_api.Api(config["api"], config["work"], config["bounds"]["hang_s"])
        self.answered = time.monotonic()  # when the API last answered
        self.members: dict[int, socket.socket] = {}  # by rank: on the head its workers, on a worker the head
        self.strangers: list[socket.socket] = []  # the longest waiting first
        self.voice = threading.Lock()  # one message at a time

    @property
    def head(self) -> bool:
        """Whether this is rank 0."""
        return bool(self.config["rank"] == 0)

    def end(self, cause: str | int, message: str) -> None:
        """End the rank; the first reason counts."""
        with self.lock:
            if self.ending is None:
                self.ending = Ending(cause if isinstance(cause, int) else STATUS[cause], message)

    def probe(self, path: str) -> tuple[bool, str]:
        """Answer a probe."""
        if self.ending:
            return False, str(self.ending)
        if path == "/live":
            return True, self.doing
        ready = self.whole.is_set() and (self.serving.is_set() or not self.head)
        if path == "/ready" and ready and self.head:
            silent = time.monotonic() - self.answered
            return silent < 3 * self.bounds["beat_s"] + 5, f"the API answered {silent:.0f} s ago"
        return ready, self.doing


# --- rendezvous -----------------------------------------------------------------------------------------------------


def _send(rank: Rank, connection: socket.socket, message: t.Mapping[str, t.Any]) -> None:
    with rank.voice:
        connection.sendall(json.dumps(message).encode() + b"\n")


def _tell(rank: Rank, message: t.Mapping[str, t.Any], timeout: float | None = None) -> None:
    """Send a message to all connected ranks; a failure is noticed elsewhere."""
    with rank.lock:
        connections = list(rank.members.values())
    for connection in connections:
        with contextlib.suppress(OSError):
            if timeout:
                connection.settimeout(timeout)
            _send(rank, connection, message)


def _lines(connection: socket.socket) -> t.Iterator[dict[str, t.Any]]:
    """Yield messages until the other end closes; TimeoutError after too long a silence."""
    with connection.makefile("rb") as stream:
        while line := stream.readline(LINE):
            if isinstance(message := json.loads(line), dict):
                yield message


def _number(rank: Rank, message: t.Mapping[str, t.Any]) -> int:
    """Return the rank of a hello; ValueError if it cannot belong to this group."""
    number = message.get("rank")
    if message.get("instance") != rank.config["instance"] or not isinstance(number, int):
        raise ValueError("not of this instance")
    if not 0 < number < rank.config["ranks"]:
        raise ValueError(f"there is no rank {number}")
    return number


def _welcome(rank: Rank, connection: socket.socket, hello: t.Mapping[str, t.Any]) -> None:
    """On the head: keep a worker's connection as long as its heartbeats arrive."""
    try:
        number = _number(rank, hello)
    except ValueError as exc:
        say(f"refused a connection: {exc}")
        return
    if hello.get("plan") != rank.config["plan"]:
        _send(rank, connection, {"end": f"the head runs another plan ({rank.config['plan']})", "cause": "plan"})
        return
    with rank.lock:
        if rank.whole.is_set() or number in rank.members or connection not in rank.strangers:
            return  # it retries until this group or its old connection has ended, or there are fewer strangers
        connection.settimeout(rank.bounds["lost_s"])
        rank.strangers.remove(connection)
        rank.members[number] = connection
    say(f"rank {number} ({hello.get('host')}) is here")
    _go(rank)
    reason = "its connection ended"
    try:
        for message in _lines(connection):
            if "end" in message:
                reason = str(message["end"])
                break
    except TimeoutError:
        reason = f"nothing heard for {rank.bounds['lost_s']:g} s"
    except (OSError, ValueError) as exc:
        reason = str(exc)
    with rank.lock:
        rank.members.pop(number, None)
        started = rank.whole.is_set()
    if started:
        rank.end("lost", f"rank {number} ({hello.get('host')}) is lost: {reason}")
    else:
        say(f"rank {number} has gone again: {reason}")


def _go(rank: Rank) -> None:
    """On the head: let all ranks start, once, when all are connected."""
    with rank.lock:
        if rank.whole.is_set() or len(rank.members) < rank.config["ranks"] - 1:
            return
        rank.whole.set()
    _tell(rank, {"go": rank.config["plan"]})
    say(f"all {rank.config['ranks']} ranks are here")


def _join(rank: Rank) -> None:
    """On a worker: connect to the head, wait for its go, then listen as long as its heartbeats arrive."""
    head = (rank.config["head"], rank.config["port"])
    until = time.monotonic() + rank.bounds["peers_s"]
    reason = "no answer"
    while not rank.ending:
        if time.monotonic() > until:
            bound = rank.bounds["peers_s"]
            rank.end("lost", f"the head at {head[0]} did not accept this rank within {bound:g} s: {reason}")
            return
        try:
            with socket.create_connection(head, timeout=rank.bounds["lost_s"]) as connection:
                _send(rank, connection, {key: rank.config[key] for key in ("instance", "rank", "plan", "host")})
                with rank.lock:
                    rank.members[0] = connection
                reason = _follow(rank, connection)
        except (OSError, ValueError) as exc:
            reason = str(exc) or type(exc).__name__
        with rank.lock:
            rank.members.pop(0, None)
        if rank.whole.is_set():
            rank.end("lost", f"the head at {head[0]} is lost: {reason}")
            return
        time.sleep(0.5)


def _follow(rank: Rank, connection: socket.socket) -> str:
    for message in _lines(connection):
        if message.get("go") == rank.config["plan"]:
            rank.whole.set()
        elif message.get("serving") == rank.config["plan"]:
            rank.serving.set()
        elif "end" in message:
            if message.get("cause") == "plan":
                rank.end("plan", str(message["end"]))
            return str(message["end"])
    return "its connection ended"


def _beat(rank: Rank) -> None:
    """Send heartbeats to the other ranks."""
    while True:
        time.sleep(rank.bounds["beat_s"])
        _tell(rank, {"beat": rank.config["rank"]})


# --- listening ------------------------------------------------------------------------------------------------------


def _serve(rank: Rank, connection: socket.socket) -> None:
    """Handle one connection: a probe's request, or another rank's hello."""
    # Anyone who reaches the port may send anything, such as nothing, or endless brackets.
    with contextlib.suppress(OSError, ValueError, LookupError, AttributeError, RecursionError), connection:
        connection.settimeout(STRANGER_S)
        # Probes and ranks send their first line at once; waiting for fragments would let a stranger stay as long as he drips.
        seen = connection.recv(LINE, socket.MSG_PEEK)
        first = connection.recv(seen.find(b"\n") + 1)  # the rest is read elsewhere
        if first.startswith(b"GET "):
            good, why = rank.probe(first.split()[1].decode())
            status, body = "200 OK" if good else "503 Service Unavailable", f"{why}\n".encode()
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode() + body)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(LINE)  # otherwise the kernel's reset would discard the answer
        elif rank.head:
            _welcome(rank, connection, json.loads(first))
    with rank.lock, contextlib.suppress(ValueError):
        rank.strangers.remove(connection)


def _listen(rank: Rank) -> None:
    """Open the port for probes and ranks (TCP) and for other ranks' preflights (UDP), each in a thread."""
    place = (rank.config["listen"], rank.config["port"])
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        tcp = socket.create_server(place, backlog=64)
        udp.bind(place)
    except OSError as exc:
        taken = f"port {place[1]}: {exc.strerror}. Give this instance a dist_port of its own."
        raise Ending(STATUS["port"], taken) from exc

    def accept() -> None:
        while True:
            connection, _address = tcp.accept()
            with rank.lock:
                known = [*rank.strangers, connection]
                gone, rank.strangers = known[:-STRANGERS], known[-STRANGERS:]  # leaves room for probes and ranks
            threading.Thread(target=_serve, args=(rank, connection), daemon=True).start()
            with contextlib.suppress(OSError, IndexError):
                gone[0].shutdown(socket.SHUT_RDWR)  # its thread then ends

    peers = {peer["address"] for rail in rank.config["rails"] for peer in rail["peers"]}

    def echo() -> None:
        while True:
            with contextlib.suppress(OSError):
                data, address = udp.recvfrom(65535)
                # Answer only questions: two that answer each other's answers would never stop.
                if address[0] in peers and data.startswith(QUESTION):
                    udp.sendto(ANSWER + data[len(QUESTION) :], address)

    for work in (accept, echo):
        threading.Thread(target=work, daemon=True).start()


# --- the engine -----------------------------------------------------------------------------------------------------


def _watch(rank: Rank) -> None:
    """On the head: notice when the API first produces tokens, and when it stops.

    An API server answers /health although the engine behind it hangs. So where the metrics stand still for long, because there is
    nothing to do or because it hangs, it is asked for a token. One that works is never asked: the answer could take its time.
    """
    rank.whole.wait()
    until, last = time.monotonic() + rank.bounds["load_s"], "no answer"
    while not rank.serving.is_set() and not rank.ending:
        try:
            text = rank.api.canary()
        except engine_api.WRONG as exc:
            last = str(exc) or type(exc).__name__
            rank.doing = f"loading ({last})"
            if time.monotonic() > until:
                rank.end("load", f"the API gave no token within {rank.bounds['load_s']:g} s: {last}")
            time.sleep(rank.bounds["beat_s"])
            continue
        rank.answered = time.monotonic()
        rank.doing = "serving"
        rank.serving.set()
        _tell(rank, {"serving": rank.config["plan"]})
        say(f"serving; the first tokens: {text!r}")
    seen, moved = [""], time.monotonic()
    while not rank.ending:
        try:
            rank.api.ask("GET", "/health", timeout=rank.bounds["hang_s"])
            if (now := rank.api.work()) != seen:
                seen, moved = now, time.monotonic()
            elif now and time.monotonic() - moved > rank.bounds["hang_s"] / 2:
                rank.api.canary()
                moved = time.monotonic()
            rank.answered = time.monotonic()
        except engine_api.WRONG as exc:
            silent = time.monotonic() - rank.answered
            if silent > rank.bounds["hang_s"]:
                rank.end("hang", f"the API has not answered for {silent:.0f} s: {exc}")
        time.sleep(rank.bounds["beat_s"])


def _reap(child: int) -> int | None:
    """Reap ended processes (as process 1 it inherits orphans); return the child's wait status once it has ended."""
    status = None
    while True:
        try:
            pid, ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == child:
            status = ended


def _stop(child: int, seconds: float) -> None:
    """Stop the engine with all its processes: SIGTERM first, then SIGKILL."""
    for number, wait in ((signal.SIGTERM, seconds), (signal.SIGKILL, 5.0)):
        until = time.monotonic() + wait
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, number)
        while time.monotonic() < until:
            _reap(child)
            try:
                os.killpg(child, 0)
            except ProcessLookupError:
                return
            except PermissionError:
                pass
            time.sleep(0.1)


def _command(rank: Rank, argv: t.Sequence[str]) -> tuple[int, str]:
    """Run a command before the engine; return its exit status and its last line on standard error."""
    last = ""
    try:
        # No Ansible here: this runs in the pod.
        child = subprocess.Popen(  # pylint: disable=ansible-bad-function,consider-using-with
            argv, stderr=subprocess.PIPE, text=True, errors="replace"
        )
    except OSError as exc:
        return STATUS["program"], f"{argv[0]}: {exc.strerror}"

    def listen() -> None:
        nonlocal last
        for line in child.stderr or ():
            sys.stderr.write(line)
            last = line.strip() or last

    reader = threading.Thread(target=listen, daemon=True)
    reader.start()
    while child.poll() is None:
        if rank.ending:
            child.kill()
        time.sleep(0.05)
    reader.join(1)
    return child.returncode, last


def _run(rank: Rank, folder: pathlib.Path, root: str, config: str) -> Ending:
    """Run the rank; return how it ended."""
    _listen(rank)
    status, last = _command(rank, [sys.executable, str(folder / "preflight.py"), config, root])
    if rank.ending:
        return rank.ending
    if status:
        return Ending(status if status > 0 else 128 - status, last or "preflight: no reason given")
    for argv in rank.config["before"]:
        rank.doing = f"running {argv[0]}"
        status, last = _command(rank, argv)
        if rank.ending:
            return rank.ending
        if status:
            return Ending(STATUS["patches"], f"{' '.join(argv)}: exit status {status}: {last}")
    rank.doing = "waiting for the other ranks"
    for work in (_beat, _watch if rank.head else _join):
        threading.Thread(target=work, args=(rank,), daemon=True).start()
    if rank.head and rank.config["ranks"] == 1:
        _go(rank)
    until = time.monotonic() + rank.bounds["peers_s"]
    while not rank.whole.wait(0.1):
        if rank.ending:
            return rank.ending
        if rank.head and time.monotonic() > until:
            here = ", ".join(map(str, sorted(rank.members))) or "none"
            bound = rank.bounds["peers_s"]
            return Ending(STATUS["lost"], f"not all ranks came within {bound:g} s; here besides 0: {here}.")
    rank.doing = "loading"
    with _guarded(root, rank.config["guard"]) as loading:
        return _engine(rank, loading)


def _guarded(root: str, guard: t.Mapping[str, str]) -> socket.socket:
    """Report this load to the node's memory guard, for as long as the returned socket is open."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.settimeout(2)
    place = pathlib.Path(root, guard["folder"].lstrip("/"))
    try:
        # Through the folder's file descriptor: a socket's path has at most 107 bytes.
        folder = os.open(place, os.O_PATH | os.O_DIRECTORY)
        try:
            made.connect(f"/proc/self/fd/{folder}/{guard['socket']}")
        finally:
            os.close(folder)
        made.sendall(guard["name"].encode())
    except OSError as exc:
        say(f"{place}: {exc.strerror or exc}: this load is not guarded against the page cache.")
    return made


def _engine(rank: Rank, load: socket.socket) -> Ending:
    argv = rank.config["argv"]
    say(f"starting {' '.join(argv)}")
    try:
        # A process group of its own, so that it can be stopped as one.
        engine = subprocess.Popen(  # pylint: disable=ansible-bad-function,consider-using-with
            argv, start_new_session=True
        )
    except OSError as exc:
        return Ending(STATUS["program"], f"{argv[0]}: {exc.strerror}")
    # No process's size includes CUDA's memory: without this the memory guard's early kill takes the largest bystander.
    try:
        pathlib.Path(f"/proc/{engine.pid}/oom_score_adj").write_text(f"{FIRST_TO_GO}\n", encoding="ascii")
    except OSError as exc:
        say(f"the engine's OOM score stays as it is: {exc.strerror}")
    if not rank.head:
        rank.doing = "in the group"
    loading = True
    try:
        while not rank.ending:
            status = _reap(engine.pid)
            if status is not None:
                engine.returncode = code = os.waitstatus_to_exitcode(status)
                if code == 0:
                    rank.end("ended", "the engine ended by itself with status 0.")
                    break
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
                rank.end(128 - code if code < 0 else code, f"the engine {how}; its log is above.")
                break
            if loading and rank.serving.is_set():
                loading = False
                load.close()
            time.sleep(0.1)
    finally:
        _part(rank)  # the engine's processes may take their time: probes and the other ranks know already
        broken = rank.ending is not None and rank.ending.status in (STATUS["lost"], STATUS["hang"])
        _stop(engine.pid, min(rank.bounds["stop_s"], BROKEN_STOP_S) if broken else rank.bounds["stop_s"])
        engine.returncode = engine.returncode or 0
    return rank.ending or Ending(1, "The engine ended.")


def _part(rank: Rank) -> str:
    """Tell the other ranks why this rank ends; return the reason."""
    reason = f"rank {rank.config['rank']}: {rank.ending}"
    _tell(rank, {"end": reason}, timeout=2)
    return reason


def main(arguments: t.Sequence[str]) -> int:
    """Run the rank that the file describes; return the exit status, never 0."""
    config, root = arguments[0], arguments[1] if len(arguments) > 1 else "/"
    rank = Rank(json.loads(pathlib.Path(config).read_text(encoding="utf-8")))

    def stopped(number: int, _frame: t.Any) -> None:
        rank.ending = rank.ending or Ending(128 + number, f"stopped by {signal.Signals(number).name}.")

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stopped)
    try:
        ending = _run(rank, pathlib.Path(__file__).resolve().parent, root, config)
    except Ending as exc:
        ending = exc
    rank.ending = rank.ending or ending
    reason = _part(rank)
    say(reason)
    with contextlib.suppress(OSError):
        pathlib.Path(root, TERMINATION_LOG.lstrip("/")).write_text(f"{reason}\n", encoding="utf-8")
    sys.stderr.flush()
    os._exit(ending.status or STATUS["ended"])  # threads that still listen must not delay the exit


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
