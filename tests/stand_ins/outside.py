"""A stand-in for what is outside: GitHub's release files, PyPI's simple index and its files, and their faults; and a wall.

Imitated: GET and HEAD with one range, from a byte to the end (RFC 9110), GitHub's redirect of a release's file to a signed address
on another host, and the HTML pages of the simple index (PEP 503) with their fragments. Faults by path: `cut`, the connection ends after so many
bytes, once; `spoiled`, other bytes of the same length. Not imitated: GitHub's API, the index as JSON (PEP 691), several ranges
at once. Registries are tests/stand_ins/registry.py.

The wall is a proxy that lets nobody through and remembers who asked.
"""

from __future__ import annotations

import hashlib
import re
import threading
import typing as t
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Outside:
    """The files, by path, and what was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cut: dict[str, int] = {}
        self.spoiled: set[str] = set()
        self.requests: list[tuple[str, str, str | None]] = []  # method, path, range
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Files,), {"outside": self}))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.cdn = f"http://localhost:{self.server.server_port}/signed"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def wheel(self, name: str, file: str, data: bytes) -> None:
        """Put a wheel there, and on its page of the index."""
        self.files[f"/files/{file}"] = data
        page = f"/simple/{name}/"
        link = f'<a href="/files/{file}#sha256={hashlib.sha256(data).hexdigest()}" data-requires-python="&gt;=3.9">{file}</a><br/>\n'
        self.files[page] = self.files.get(page, b"<!DOCTYPE html>\n") + link.encode()

    def asked(self) -> list[str]:
        """Return the paths that were fetched."""
        return [path for method, path, _range in self.requests if method == "GET"]

    def stop(self) -> None:
        """Serve no more."""
        self.server.shutdown()
        self.server.server_close()


class _Files(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    outside: Outside

    def log_message(self, *_arguments: t.Any) -> None:
        pass

    def do_GET(self) -> None:
        world, path = self.outside, self.path.partition("?")[0]
        world.requests.append((self.command, path, self.headers.get("Range")))
        if path.startswith("/releases/"):
            self.send_response(302)
            self.send_header("Location", f"{world.cdn}{path}?signature=abc")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        name = path.removeprefix("/signed")
        data = world.files.get(name)
        if data is None:
            self.send_error(404)
            return
        data = bytes(byte ^ 1 for byte in data) if name in world.spoiled else data
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "bytes=0-"))
        if asked is None:
            self.send_error(501, "the stand-in knows ranges of one beginning alone")
            return
        start = int(asked[1])
        if start and start >= len(data):
            self.send_error(416)
            return
        body = data[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        if self.command == "HEAD":
            return
        cut = world.cut.pop(name, None)
        self.wfile.write(body if cut is None else body[:cut])
        self.close_connection = self.close_connection or cut is not None

    do_HEAD = do_GET


class Wall:
    """A proxy that lets nobody through."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Refusing,), {"wall": self}))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        """What sends a program's requests to it; loopback is not the internet."""
        names = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        return dict.fromkeys(names, self.url) | dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost")

    def stop(self) -> None:
        """Stand no more."""
        self.server.shutdown()
        self.server.server_close()


class _Refusing(BaseHTTPRequestHandler):
    wall: Wall

    def log_message(self, *_arguments: t.Any) -> None:
        pass

    def refuse(self) -> None:
        self.wall.asked.append(f"{self.command} {self.path}")
        self.send_error(403)

    do_CONNECT = do_GET = do_HEAD = do_POST = refuse
