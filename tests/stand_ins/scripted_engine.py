"""STAND-IN for an inference engine, started as `python3 -m sglang.launch_server`: it has no model and says scripted words.

It takes the engine's arguments, meets the other ranks at --dist-init-addr as they do, over the planned addresses, and speaks
the part of the OpenAI-like API that probes and clients use. A rank that loses another one *hangs*, as real ones do in their
collectives: taking the group down is not this program's work. SCRIPTED_LOAD_S: seconds that its load takes.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import socket
import sys
import threading
import time

BLOCK = 4096  # bytes that ranks exchange in each step
WORDS = "six seven eight nine"


def say(text: str) -> None:
    print(f"scripted engine: {text}", flush=True)


class Group:
    """The connections between ranks, as torch's rendezvous makes them: all at the head."""

    def __init__(self, rank: int, ranks: int, place: tuple[str, int]) -> None:
        self.others: list[socket.socket] = []
        if rank == 0 and ranks > 1:
            with socket.create_server(place) as server:
                while len(self.others) < ranks - 1:
                    self.others.append(server.accept()[0])
        elif rank:
            until = time.monotonic() + 120
            while not self.others:
                try:
                    self.others.append(socket.create_connection(place, timeout=5))
                except OSError as exc:
                    if time.monotonic() > until:
                        sys.exit(f"no rendezvous at {place}: {exc}")
                    time.sleep(0.5)
        for each in self.others:
            each.settimeout(None)

    def step(self) -> None:
        """Exchange a block with every other rank; hangs for ever where one is gone."""
        for each in self.others:
            try:
                each.sendall(b"x" * BLOCK)
                left = BLOCK
                while left:
                    got = each.recv(left)
                    if not got:
                        raise OSError("the connection ended")
                    left -= len(got)
            except OSError as exc:
                say(f"a rank is gone ({exc}); hanging, as a collective does")
                threading.Event().wait()


class Api(http.server.BaseHTTPRequestHandler):
    """The API of the head."""

    model = ""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of each request: probes come every two seconds."""

    def _answer(self, made: object) -> None:
        body = json.dumps(made).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer({})
        elif self.path == "/v1/models":
            self._answer({"object": "list", "data": [{"id": self.model, "object": "model"}]})
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        usage = {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9}
        common = {"id": "scripted", "model": self.model, "usage": usage}
        if self.path == "/v1/completions":
            self._answer({**common, "choices": [{"index": 0, "text": f" {WORDS}", "finish_reason": "length"}]})
        elif self.path == "/v1/chat/completions":
            said = {"role": "assistant", "content": f"{asked['messages'][-1]['content']} {WORDS}"}
            self._answer({**common, "choices": [{"index": 0, "message": said, "finish_reason": "stop"}]})
        else:
            self.send_error(404)


def main() -> None:
    """Be a rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--dist-init-addr", default="127.0.0.1:0")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    asked, _more = parser.parse_known_args()
    host, _colon, port = asked.dist_init_addr.rpartition(":")
    say(f"rank {asked.node_rank} of {asked.nnodes} of {asked.model_path}, meeting at {asked.dist_init_addr}")
    group = Group(asked.node_rank, asked.nnodes, (host, int(port)))
    say("all ranks have met")
    time.sleep(float(os.environ.get("SCRIPTED_LOAD_S", "1")))
    if asked.node_rank == 0:
        Api.model = asked.model_path
        server = http.server.ThreadingHTTPServer((asked.host, asked.port), Api)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        say(f"serving on {asked.host}:{asked.port}")
    while True:
        group.step()
        time.sleep(0.5)


if __name__ == "__main__":
    main()
