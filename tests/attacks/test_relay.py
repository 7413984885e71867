"""A relay of the copy chain that answers with errors, too little, or for ever: nothing of it is taken for file data."""

from __future__ import annotations

import http.server
import pathlib
import threading
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.transfer import relay as relays
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.tests.support.parcels import made

CONTENT = b"weights " * 4000


class Parent(http.server.BaseHTTPRequestHandler):
    status = 500
    body = b"x" * 200
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def do_POST(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_arguments: t.Any) -> None:
        pass


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, b"x" * 200), (503, b""), (302, b"y" * 200), (200, b""), (206, b""), (206, b"z"), (400, b"<html>" * 9)],
)
def test_what_is_no_file_data_is_not_stored_and_not_asked_for_in_a_loop(
    status: int, body: bytes, tmp_path: pathlib.Path
) -> None:
    handler = type("Bad", (Parent,), {"status": status, "body": body, "asked": 0})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        link = relays.Link("spark2", server.server_address[1], ("spark1", "127.0.0.1"), patience_s=0.6)
        parcel = made(tmp_path, {"m/blobs/a": CONTENT})
        with pytest.raises(CollectionError, match="spark1"):
            relays.relay(parcel, link, "token", relays.Counter())
    finally:
        server.shutdown()
        server.server_close()
    assert 0 < t.cast(t.Any, handler).asked < 30
    left = [place.read_bytes() for place in tmp_path.rglob("*") if place.is_file()]
    assert status == 206 or not any(body and body in each for each in left)
