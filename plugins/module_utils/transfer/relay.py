# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Move a parcel along a chain of nodes: each pulls from its predecessor and serves its successor at the same time.

A chain takes hardly longer than one copy, however many nodes there are, since each file is passed on as soon as it is complete; and
it needs only wires between neighbours, so it works on a ring of cables as well as on a switch. Plain HTTP with byte ranges, on one
address of the fabric, for as long as the copy takes; requests without the run's token get nothing. Received data is accepted only
if its SHA-256 matches the one from Ansible, so the wire need not be trusted.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import http.client
import os
import queue
import re
import socket
import threading
import time
import typing as t
import urllib.parse
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ansible_collections.dgxspark.cluster.plugins.module_utils import node_files
from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer import parcel as parcels
from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer.parcel import Item, Parcel
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

ALIVE, DONE = "/alive/", "/done/"
_NOT_YET = 425
_RANGE = re.compile(r"^bytes=(\d+)-$")
_PAUSE_S = 0.2
_LEAST = 64 * 1024  # bytes that an answer must bring, unless it brings the end of a file
_STREAMS = 4
_CONNECTIONS = 64  # simultaneous
_STRANGER_S = 5.0  # a connection must show the token within this time
_SILENT_S = 30.0  # after that, the limit without a byte sent or received


@dataclass(frozen=True, slots=True)
class Link:
    """A node's place in the chain. parent: (name, address) of the node that it pulls from; children: names of those that pull from it.

    listen: its own fabric addresses for them. patience_s: silence after which the other end counts as lost.
    """

    name: str
    port: int
    parent: tuple[str, str] | None = None
    children: tuple[str, ...] = ()
    listen: tuple[str, ...] = ()
    patience_s: float = 60.0


class Counter:
    """Bytes moved and read so far, across all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.moved = 0
        self.read = 0
        self.last = time.monotonic()

    def move(self, count: int) -> None:
        """Count bytes received over the wire."""
        with self._lock:
            self.moved += count
            self.last = time.monotonic()

    def check(self, count: int) -> None:
        """Count bytes read for verification."""
        with self._lock:
            self.read += count


class _Served:
    """What a node can pass on: its verified items, and the children that are done."""

    def __init__(self, parcel: Parcel, token: str) -> None:
        self.parcel, self.token = parcel, token
        self.ready: dict[str, Item] = {}
        self.known = {item.path: item for item in parcel.items}
        self.done: set[str] = set()
        self.asked = time.monotonic()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: _Served
    stranger: threading.Timer
    timeout = _STRANGER_S
    bound: float

    def setup(self) -> None:
        """Limit a stranger's total time: with a limit per byte, one that trickles could hold its connection indefinitely."""
        super().setup()
        self.stranger = threading.Timer(_STRANGER_S, self._let_go)
        self.stranger.daemon = True
        self.stranger.start()

    def finish(self) -> None:
        """End the connection."""
        self.stranger.cancel()
        super().finish()

    def _let_go(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_arguments: t.Any) -> None:
        """Log nothing: paths and tokens are confidential."""

    def _empty(self, code: int) -> None:
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _allowed(self) -> bool:
        given = self.headers.get("Authorization", "")
        if hmac.compare_digest(given.encode(), f"Bearer {self.served.token}".encode()):
            self.served.asked = time.monotonic()
            self.stranger.cancel()
            self.connection.settimeout(self.bound)
            return True
        self.close_connection = True
        self._empty(401)
        return False

    def do_POST(self) -> None:
        """A child reports that it is alive, or that it is done, successfully or not."""
        if self._allowed():
            if self.path.startswith(DONE):
                self.served.done.add(urllib.parse.unquote(self.path.removeprefix(DONE)))
            self._empty(204)

    def do_GET(self) -> None:
        """Send one file, from an offset."""
        if not self._allowed():
            return
        path = urllib.parse.unquote(self.path.lstrip("/"))
        item = self.served.ready.get(path)
        if item is None:
            self._empty(_NOT_YET if path in self.served.known else 404)
            return
        asked = _RANGE.match(self.headers.get("Range", ""))
        start = int(asked.group(1)) if asked else 0
        if start > item.size:
            self._empty(416)
            return
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(item.size - start))
        self.end_headers()
        with contextlib.suppress(OSError), self.served.parcel.files.open(path) as file:
            while start < item.size:
                # The socket's own sendfile, which applies the timeout to a child that receives nothing.
                sent = self.connection.sendfile(file, start, min(item.size - start, 64 * 2**20))
                if not sent:
                    break
                start += sent
                self.served.asked = time.monotonic()
            parcels.forget(file.fileno())
        if start < item.size:
            self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = _CONNECTIONS

    def __init__(self, *arguments: t.Any) -> None:
        self._room = threading.BoundedSemaphore(_CONNECTIONS)
        super().__init__(*arguments)

    def process_request(self, request: t.Any, client_address: t.Any) -> None:
        """Accept a connection if there is room: strangers may open any number of them, and stay silent."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: t.Any, client_address: t.Any) -> None:
        """Handle the request, and release its slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: t.Any, client_address: t.Any) -> None:
        """Log nothing: the child retries a connection that breaks or falls silent."""


def _listen(link: Link, address: str, served: _Served) -> _Server:
    bound = min(link.patience_s, _SILENT_S)
    try:
        return _Server((address, link.port), type("Bound", (_Handler,), {"served": served, "bound": bound}))
    except OSError as exc:
        where = f"{link.name}: {address} port {link.port}"
        if exc.errno == errno.EADDRINUSE:
            raise CollectionError(f"{where} is already in use. Choose another port (model_weights_copy_port).") from exc
        raise CollectionError(
            f"{where}: {exc.strerror}. The fabric's address is not on the node: run the fabric part, and check that no pod "
            "holds that VF."
        ) from exc


class _Puller:
    """Pulls items from the parent, several at a time."""

    def __init__(
        self, parcel: Parcel, link: Link, parent: tuple[str, str], token: str, served: _Served, counter: Counter
    ) -> None:
        self.parcel, self.link, self.token, self.served, self.counter = parcel, link, token, served, counter
        self.peer, self.address = parent
        self.known: parcels.Known = {}
        self.todo: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self.failed: list[CollectionError] = []

    def pull(self, items: t.Sequence[Item]) -> None:
        """Pull all items. Raises CollectionError for the first failure that waiting cannot fix."""
        for item in items:
            self.todo.put(item)
        threads = [threading.Thread(target=self._work, daemon=True) for _stream in range(min(_STREAMS, len(items)))]
        self.counter.last = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failed:
            raise self.failed[0]

    def _work(self) -> None:
        while not self.failed:
            try:
                item = self.todo.get_nowait()
            except queue.Empty:
                return
            try:
                self._one(item)
            except CollectionError as exc:
                self.failed.append(exc)
            except OSError as exc:
                self.failed.append(node_files.cannot_write(str(parcels.place(self.parcel, item.path)), exc))

    def _one(self, item: Item) -> None:
        files, part = self.parcel.files, parcels.part(self.parcel, item.path)
        for _again in range(2):
            if self._receive(item, part) == item.sha256:
                parcels.settle(self.parcel, item, self.known)
                self.served.ready[item.path] = item
                return
            files.unlink(part)
        name = parcels.place(self.parcel, item.path).name
        raise CollectionError(
            f"{self.link.name}: {name} arrived twice from {self.peer} with a SHA-256 that is not the one in its list "
            f"({item.sha256[:12]}…). {self.peer} or its disk is at fault: have its files read again "
            "(for weights: model_weights_verify=true). Nothing of it was kept."
        )

    def _receive(self, item: Item, part: str) -> str:
        """Complete the partial file from where it stopped; return the SHA-256 of the whole."""
        made = hashlib.sha256()
        with self.parcel.files.resume(part) as file:
            if os.fstat(file.fileno()).st_size > item.size:
                file.truncate(0)
            while data := file.read(parcels.CHUNK):
                made.update(data)
                self.counter.check(len(data))
            while (start := file.tell()) < item.size:
                before = self.counter.last
                if not self._stream(item, file, made) and file.tell() - start < min(_LEAST, item.size - start):
                    self.counter.last = before  # a trickle is no sign of life
                if file.tell() < item.size:
                    self._wait()
            os.fsync(file.fileno())
            parcels.forget(file.fileno())
        return made.hexdigest()

    def _stream(self, item: Item, file: t.Any, made: t.Any) -> bool:
        """Request the rest, and store what comes, if it is that; return whether the parent does not have it yet."""
        start = file.tell()
        buffer = memoryview(bytearray(parcels.CHUNK))
        connection = http.client.HTTPConnection(self.address, self.link.port, timeout=10)
        try:
            headers = {"Authorization": f"Bearer {self.token}", "Range": f"bytes={start}-"}
            connection.request("GET", "/" + urllib.parse.quote(item.path), headers=headers)
            answer = connection.getresponse()
            if answer.status == _NOT_YET:
                self.counter.last = time.monotonic()  # the parent is alive, but does not have the file yet
                return True
            if answer.status in (401, 404, 416):
                raise CollectionError(
                    f"{self.link.name}: {self.peer} ({self.address}) refuses {item.path} with {answer.status}: it is not in this "
                    "run. Make sure that no other run copies at the same time."
                )
            if answer.status != 206 and not (answer.status == 200 and start == 0):
                return False  # an error's text is not the file: wait, and ask again until patience is over
            while count := answer.readinto(buffer):
                count = min(count, item.size - file.tell())
                if not count:
                    break
                parcels.write(file, buffer[:count])
                made.update(buffer[:count])
                self.counter.move(count)
        except (http.client.HTTPException, ConnectionError, TimeoutError):
            pass
        except OSError as exc:
            if exc.errno not in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL):
                raise
        finally:
            connection.close()
        return False

    def _wait(self) -> None:
        if self.failed:
            raise self.failed[0]
        if time.monotonic() - self.counter.last > self.link.patience_s:
            raise CollectionError(
                f"{self.link.name}: {self.peer} cannot be reached at {self.address} port {self.link.port}: nothing arrived for "
                f"{self.link.patience_s:.0f} s. Run dgxspark.cluster.verify for the fabric; a firewall must let this port through "
                "there. What has arrived is kept, and the next run continues from there."
            )
        time.sleep(_PAUSE_S)

    def report(self, what: str) -> bool:
        """Tell the parent that this node is alive, or that it is done; return whether the parent answered."""
        connection = http.client.HTTPConnection(self.address, self.link.port, timeout=5)
        try:
            headers = {"Authorization": f"Bearer {self.token}", "Content-Length": "0"}
            connection.request("POST", what + urllib.parse.quote(self.link.name), headers=headers)
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        return True

    def report_done(self) -> None:
        """Tell the parent that this node has everything. Retries: a node that had it from the start may call before the parent listens."""
        began = time.monotonic()
        while not self.report(DONE) and time.monotonic() - began < self.link.patience_s:
            time.sleep(_PAUSE_S)

    @contextlib.contextmanager
    def keepalive(self) -> t.Iterator[None]:
        """Keep the parent waiting while files are read, and release it at the end, whatever the outcome."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(self.link.patience_s / 4):
                self.report(ALIVE)

        threading.Thread(target=beat, daemon=True).start()
        try:
            yield
        except BaseException:
            over.set()
            self.report(DONE)
            raise
        over.set()
        self.report_done()


def relay(parcel: Parcel, link: Link, token: str, counter: Counter) -> None:
    """Get the whole parcel, and pass it on to all children. CollectionError says what prevents it.

    Without a parent everything must exist already.
    """
    served = _Served(parcel, token)
    servers: list[_Server] = []
    puller = _Puller(parcel, link, link.parent, token, served, counter) if link.parent else None
    try:
        for address in link.listen if link.children else ():
            servers.append(_listen(link, address, served))
            threading.Thread(target=servers[-1].serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        with puller.keepalive() if puller else contextlib.nullcontext():
            known = parcels.read_seal(parcel)
            missing = []
            for item in parcel.items:
                if parcels.verified(parcel, item, known, counter.check):
                    served.ready[item.path] = item
                else:
                    missing.append(item)
            if puller:
                puller.known = known
                parcels.keep_own(parcel)
                puller.pull(missing)
            elif missing:
                raise CollectionError(
                    f"{link.name}: {missing[0].path} is missing, or its SHA-256 is not the one in its list. Run again "
                    "to fetch it again."
                )
            parcels.lay(parcel, known)
        _wait_for_children(link, served)
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def _wait_for_children(link: Link, served: _Served) -> None:
    """Wait until every child is done, or silent for too long: the child reports its own fault."""
    served.asked = time.monotonic()
    while not served.done.issuperset(link.children):
        if time.monotonic() - served.asked > link.patience_s:
            late = ", ".join(sorted(set(link.children) - served.done))
            raise CollectionError(
                f"{link.name}: {late} did not fetch the files within {link.patience_s:.0f} s. See its own error; otherwise "
                "run dgxspark.cluster.verify for the fabric between the two."
            )
        time.sleep(_PAUSE_S)
