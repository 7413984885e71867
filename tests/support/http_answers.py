"""A stand-in's server on loopback: a handler that answers and logs nothing, served in a thread."""

from __future__ import annotations

import contextlib
import http.server
import threading
import typing as t
from collections.abc import Iterator, Mapping


class Answering(http.server.BaseHTTPRequestHandler):
    """The base of a stand-in's handler. `headers_sent`: with each answer."""

    headers_sent: t.ClassVar[Mapping[str, str]] = {}

    def answer(self, status: int, body: bytes = b"", **more: str) -> None:
        """Send a whole answer; more: further headers, with _ for -."""
        self.send_response(status)
        headers = {**self.headers_sent, "Content-Length": str(len(body))}
        for name, value in (headers | {key.replace("_", "-"): value for key, value in more.items()}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: t.Any) -> None:
        """Log nothing."""


@contextlib.contextmanager
def served(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve, and return the address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
