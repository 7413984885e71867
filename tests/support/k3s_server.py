"""A K3s server that the inventory does not manage, as its agents see it: /cacerts, /v1-k3s/config, and a node's certificate."""

from __future__ import annotations

import base64
import hashlib
import http.server
import ipaddress
import json
import pathlib
import socketserver
import threading
import typing as t

from ansible_collections.dgxspark.cluster.tests.unit.tls import speaks_tls

PASSWORD, MADE = "secret-Passw0rd", "abcdef.0123456789abcdef"
Plain = dict[str, t.Any]


def go_network(text: str) -> Plain:
    """Return a network as Go's encoding/json writes net.IPNet."""
    network = ipaddress.ip_network(text)
    return {"IP": str(network.network_address), "Mask": base64.b64encode(network.netmask.packed).decode()}


class Server:
    """It speaks TLS on loopback and, for K3s's stand-in, without TLS on a socket (`plain`). joined: the nodes that came."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.authority, self.plain = folder / "ca.pem", folder / "plain"
        self.config: t.Any = {
            "ClusterIPRange": go_network("10.42.0.0/16"),
            "ServiceIPRange": go_network("10.43.0.0/16"),
            "IPSECPSK": "psk",
        }
        self.status, self.seen = 200, list[str]()
        self.came: t.Callable[[Plain], None] = lambda _node: None
        handler = self._handler()
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.http.socket = speaks_tls(self.authority).wrap_socket(self.http.socket, server_side=True)
        self.beside = socketserver.ThreadingUnixStreamServer(str(self.plain), handler)
        self.port = self.http.server_address[1]
        self.url = f"https://127.0.0.1:{self.port}"
        for each in (self.http, self.beside):
            threading.Thread(target=each.serve_forever, daemon=True).start()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        server = self

        class Api(http.server.BaseHTTPRequestHandler):
            def answer(self, code: int, body: bytes) -> None:
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def known(self) -> bool:
                said = self.headers.get("Authorization", "")
                server.seen.append(said)
                # K3s's stand-in sends a made token as a password of `node`.
                words = (f"node:{PASSWORD}", f"node:{MADE}")
                basic = {"Basic " + base64.b64encode(each.encode()).decode() for each in words}
                return said in {f"Bearer {MADE}", *basic}

            def do_GET(self) -> None:
                if self.path == "/cacerts":
                    self.known()
                    self.answer(200, server.authority.read_bytes())
                elif self.known():
                    self.answer(server.status, json.dumps(server.config).encode())
                else:
                    self.answer(401, b"")

            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.known():
                    server.came(json.loads(body))
                    self.answer(200, b"{}")
                else:
                    self.answer(401, b"")

            def log_message(self, *_words: object) -> None:
                pass

        return Api

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.authority.read_bytes()).hexdigest()

    def token(self, words: str = f"node:{PASSWORD}") -> str:
        return f"K10{self.digest}::{words}"

    def close(self) -> None:
        self.http.shutdown()
        self.beside.shutdown()
