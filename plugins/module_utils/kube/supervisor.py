# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start one rank and take it down with its group: process 1 of a rank's container.

It listens, runs the preflight and the patches, waits until all ranks are here, starts the engine, and ends when the
engine ends or the group does. Ranks of an engine that lost one of them hang; so each worker keeps a TCP connection to
the head's supervisor, over the fabric. A rank whose supervisor goes breaks it at once; one whose node or network goes is
missed after `lost_s` without a beat. The head then tells the others why, and everybody stops its engine and exits with a
status of its own, never 0: the kubelet starts the containers again, and they meet again. A new start never joins an old
group, since the head lets ranks in only while its own engine is not started.

`python3 supervisor.py RANK.json [ROOT]`, with RANK.json as preflight.py says, and
`{instance, plan, ranks, host, listen, port, head, api, argv, before, guard, bounds: {peers_s, load_s, beat_s, lost_s,
hang_s, stop_s}}`: `plan` is the checksum that all ranks must share, `head` the address of rank 0, `api` the port of the
API (on the head), `before` a list of commands (patches) to run first, `guard` = `{folder, socket, name}` where the node's
memory guard listens for who loads. Seconds throughout. Where the API has a key, DGXSPARK_API_KEY_FILE names its file.

Probes ask it by HTTP on `port`: /started, /ready and /live answer 200 or 503 with the reason. The head is started and
ready once the engine's API has given a token; a worker once the group is whole.
"""

from __future__ import annotations

import contextlib
import http.client
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

# Exit status -> cause; 10 to 19 are the preflight's. An engine's own status is passed on, a signal as 128 + its number.
CAUSES = {
    30: "lost",  # another rank, or the way to it, is gone
    31: "plan",  # a rank of another plan came
    32: "port",  # the supervisor's port is taken
    33: "ended",  # the engine ended by itself, with status 0
    34: "patches",
    35: "load",  # the API gave no token in time
    36: "hang",  # the API stopped answering
    37: "program",  # the engine could not be started at all
}
STATUS = {cause: status for status, cause in CAUSES.items()}
TERMINATION_LOG = "/dev/termination-log"
LINE = 65536
# Connections at once that have not said who they are, and seconds that each of them has to say so.
STRANGERS, STRANGER_S = 64, 5.0
QUESTION, ANSWER = b"?", b"!"  # the first byte of a preflight's packet, and of what comes back
FIRST_TO_GO = 1000  # the highest of all OOM scores


class Ending(Exception):
    """The rank ends: with which status, and why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def say(text: str) -> None:
    """Say a line in the container's log."""
    sys.stderr.write(f"supervisor: {text}\n")


class Rank:
    """What all threads share: configuration, the reason to end, and what probes are told."""

    def __init__(self, config: t.Mapping[str, t.Any]) -> None:
        self.config = config
        self.bounds: t.Mapping[str, float] = config["bounds"]
        self.lock = threading.Lock()
        self.ending: Ending | None = None
        self.whole = threading.Event()  # all ranks have met, and the engine may start
        self.serving = threading.Event()  # the API has given a token: no rank of the group loads any more
        self.doing = "preflight"
        self.answered = time.monotonic()  # when the API last did
        self.members: dict[int, socket.socket] = {}  # by rank: on the head its workers, on a worker the head
        self.strangers: list[socket.socket] = []  # who waits for longest is the first
        self.voice = threading.Lock()  # one message at a time

    @property
    def head(self) -> bool:
        """Whether this is rank 0."""
        return bool(self.config["rank"] == 0)

    def end(self, cause: str | int, message: str) -> None:
        """End the rank; the first reason stands."""
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


# --- meeting --------------------------------------------------------------------------------------------------------


def _send(rank: Rank, connection: socket.socket, message: t.Mapping[str, t.Any]) -> None:
    with rank.voice:
        connection.sendall(json.dumps(message).encode() + b"\n")


def _tell(rank: Rank, message: t.Mapping[str, t.Any], timeout: float | None = None) -> None:
    """Say something to all whom this rank is connected to; one that cannot be told is missed elsewhere."""
    with rank.lock:
        connections = list(rank.members.values())
    for connection in connections:
        with contextlib.suppress(OSError):
            if timeout:
                connection.settimeout(timeout)
            _send(rank, connection, message)


def _lines(connection: socket.socket) -> t.Iterator[dict[str, t.Any]]:
    """Yield messages until the other end closes; TimeoutError where it is silent for too long."""
    with connection.makefile("rb") as stream:
        while line := stream.readline(LINE):
            if isinstance(message := json.loads(line), dict):
                yield message


def _number(rank: Rank, message: t.Mapping[str, t.Any]) -> int:
    """Return the rank that a hello is of; ValueError where it cannot be one of this group's."""
    number = message.get("rank")
    if message.get("instance") != rank.config["instance"] or not isinstance(number, int):
        raise ValueError("not of this instance")
    if not 0 < number < rank.config["ranks"]:
        raise ValueError(f"there is no rank {number}")
    return number


def _welcome(rank: Rank, connection: socket.socket, hello: t.Mapping[str, t.Any]) -> None:
    """On the head: keep a worker's connection for as long as it beats."""
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
            return  # it comes again once this group has ended, or its old connection, or strangers are fewer
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
    """On the head: let all start, once, where all are here."""
    with rank.lock:
        if rank.whole.is_set() or len(rank.members) < rank.config["ranks"] - 1:
            return
        rank.whole.set()
    _tell(rank, {"go": rank.config["plan"]})
    say(f"all {rank.config['ranks']} ranks are here")


def _join(rank: Rank) -> None:
    """On a worker: find the head, wait for its word, then listen for as long as it beats."""
    head = (rank.config["head"], rank.config["port"])
    until = time.monotonic() + rank.bounds["peers_s"]
    reason = "no answer"
    while not rank.ending:
        if time.monotonic() > until:
            rank.end(
                "lost", f"the head at {head[0]} did not accept this rank within {rank.bounds['peers_s']:g} s: {reason}"
            )
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
    """Let the others know that this rank lives."""
    while True:
        time.sleep(rank.bounds["beat_s"])
        _tell(rank, {"beat": rank.config["rank"]})


# --- listening ------------------------------------------------------------------------------------------------------


def _serve(rank: Rank, connection: socket.socket) -> None:
    """Answer one connection: a probe's request, or another rank's hello."""
    # Whoever reaches the port may say anything, such as nothing, or brackets without end.
    with contextlib.suppress(OSError, ValueError, LookupError, AttributeError, RecursionError), connection:
        connection.settimeout(STRANGER_S)
        # Probes and ranks say their first line at once: waiting for pieces would let a stranger stay for as long as he drips.
        seen = connection.recv(LINE, socket.MSG_PEEK)
        first = connection.recv(seen.find(b"\n") + 1)  # what follows is read by others
        if first.startswith(b"GET "):
            good, why = rank.probe(first.split()[1].decode())
            status, body = "200 OK" if good else "503 Service Unavailable", f"{why}\n".encode()
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode() + body)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(LINE)  # or the kernel would reset the answer away
        elif rank.head:
            _welcome(rank, connection, json.loads(first))
    with rank.lock, contextlib.suppress(ValueError):
        rank.strangers.remove(connection)


def _listen(rank: Rank) -> None:
    """Open the port for probes and ranks (TCP) and for the others' preflight (UDP), each in a thread."""
    place = (rank.config["listen"], rank.config["port"])
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        tcp = socket.create_server(place, backlog=64)
        udp.bind(place)
    except OSError as exc:
        raise Ending(
            STATUS["port"], f"port {place[1]}: {exc.strerror}. Give this instance a dist_port of its own."
        ) from exc

    def accept() -> None:
        while True:
            connection, _address = tcp.accept()
            with rank.lock:
                known = [*rank.strangers, connection]
                gone, rank.strangers = known[:-STRANGERS], known[-STRANGERS:]  # probes and ranks find room
            threading.Thread(target=_serve, args=(rank, connection), daemon=True).start()
            with contextlib.suppress(OSError, IndexError):
                gone[0].shutdown(socket.SHUT_RDWR)  # its thread ends by itself

    peers = {peer["address"] for rail in rank.config["rails"] for peer in rail["peers"]}

    def echo() -> None:
        while True:
            with contextlib.suppress(OSError):
                data, address = udp.recvfrom(65535)
                # An answer is no question: two that answer each other would never end.
                if address[0] in peers and data.startswith(QUESTION):
                    udp.sendto(ANSWER + data[len(QUESTION) :], address)

    for work in (accept, echo):
        threading.Thread(target=work, daemon=True).start()


# --- the engine -----------------------------------------------------------------------------------------------------


def _ask(rank: Rank, method: str, path: str, body: t.Any = None, timeout: float = 10) -> t.Any:
    """Ask the engine's API on this host; OSError or HTTPException where it does not answer with 200."""
    connection = http.client.HTTPConnection("127.0.0.1", rank.config["api"], timeout=timeout)
    try:
        headers = {"Content-Type": "application/json"}
        if place := os.environ.get("DGXSPARK_API_KEY_FILE"):  # it asks at the door (door.py), as everybody does
            headers["Authorization"] = f"Bearer {pathlib.Path(place).read_text(encoding='ascii').strip()}"
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise OSError(f"{method} {path}: {answer.status} {text[:200].decode(errors='replace')}")
        return json.loads(text) if text.strip() and "json" in answer.headers.get("Content-Type", "") else None
    finally:
        connection.close()


def canary(rank: Rank) -> str:
    """Ask the API for a few tokens; return them. OSError, ValueError or HTTPException where none come."""
    model = _ask(rank, "GET", "/v1/models")["data"][0]["id"]
    body = {"model": model, "prompt": "1 2 3 4 5", "max_tokens": 4, "temperature": 0}
    said = _ask(rank, "POST", "/v1/completions", body, timeout=rank.bounds["hang_s"])
    if not said.get("usage", {}).get("completion_tokens") and not said["choices"][0]["text"]:
        raise ValueError("the answer has no token")
    return str(said["choices"][0]["text"])


def _watch(rank: Rank) -> None:
    """On the head: find out when the API gives tokens, and when it no longer answers."""
    wrong = (OSError, ValueError, LookupError, TypeError, AttributeError, http.client.HTTPException)
    rank.whole.wait()
    until, last = time.monotonic() + rank.bounds["load_s"], "no answer"
    while not rank.serving.is_set() and not rank.ending:
        try:
            text = canary(rank)
        except wrong as exc:
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
    while not rank.ending:
        try:
            _ask(rank, "GET", "/health", timeout=rank.bounds["hang_s"])
            rank.answered = time.monotonic()
        except wrong as exc:
            silent = time.monotonic() - rank.answered
            if silent > rank.bounds["hang_s"]:
                rank.end("hang", f"the API has not answered for {silent:.0f} s: {exc}")
        time.sleep(rank.bounds["beat_s"])


def _reap(child: int) -> int | None:
    """Collect what has ended (as process 1 it inherits orphans); return the child's own wait status once it has."""
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
    """Stop the engine with all its processes: they are asked, then made to."""
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
    """Run what comes before the engine; return its exit status and the last line that it wrote to standard error."""
    last = ""
    try:
        # No Ansible is here: this runs in the pod.
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
    """Do all of it; return how it ended."""
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
            return Ending(
                STATUS["lost"], f"not all ranks came within {rank.bounds['peers_s']:g} s; here besides 0: {here}."
            )
    rank.doing = "loading"
    with _guarded(root, rank.config["guard"]) as loading:
        return _engine(rank, loading)


def _guarded(root: str, guard: t.Mapping[str, str]) -> socket.socket:
    """Tell the node's memory guard of this load, for as long as the socket that is returned is open."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.settimeout(2)
    place = pathlib.Path(root, guard["folder"].lstrip("/"))
    try:
        # By the folder's handle: a socket's path may be of 107 bytes at most.
        made.connect(f"/proc/self/fd/{os.open(place, os.O_PATH | os.O_DIRECTORY)}/{guard['socket']}")
        made.sendall(guard["name"].encode())
    except OSError as exc:
        say(f"{place}: {exc.strerror or exc}: this load is not guarded against the page cache.")
    return made


def _engine(rank: Rank, load: socket.socket) -> Ending:
    argv = rank.config["argv"]
    say(f"starting {' '.join(argv)}")
    try:
        # A group of its own, to be stopped as one.
        engine = subprocess.Popen(  # pylint: disable=ansible-bad-function,consider-using-with
            argv, start_new_session=True
        )
    except OSError as exc:
        return Ending(STATUS["program"], f"{argv[0]}: {exc.strerror}")
    # CUDA's memory is in no process's size: without this the memory guard's early kill takes the largest bystander.
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
                code = os.waitstatus_to_exitcode(status)
                engine.returncode = code
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
        _part(rank)  # what is left of the engine may take its time: probes and the other ranks know already
        _stop(engine.pid, rank.bounds["stop_s"])
        engine.returncode = engine.returncode or 0
    return rank.ending or Ending(1, "The engine ended.")


def _part(rank: Rank) -> str:
    """Tell the others why this rank ends; return that."""
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
    os._exit(ending.status or STATUS["ended"])  # threads that still listen must not hold it up


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
