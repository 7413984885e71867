"""Measures the cost of the bench's own client: streams from a scripted server, in a separate process, at known rates.

Usage: client_share.py [N:TOKENS_PER_S_OF_EACH …]. The share is the processor time of the client's one thread over the level's
time, as the bench reports it (client_share).
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import pathlib
import platform
import runpy
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.client import ChatRequest  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.guards import limits_of  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.load import Planned, turns  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.workloads import Question, Workload  # noqa: E402

TOKENS = 300
WORDS = (ROOT / "README.md").read_text(encoding="utf-8").split()
BODY = (
    '{"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion.chunk","created":1790000000,"model":"m",'
    '"choices":[{"index":0,"delta":{"content":%s},"logprobs":null,"finish_reason":%s,"token_ids":null}]}'
)


def chunk(text: str) -> bytes:
    """Return one event as one HTTP chunk, as vLLM sends it."""
    data = f"data: {text}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


async def serve(port: object, pause: float) -> None:
    """Answer each request with TOKENS words, with this pause between them."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
                )
                number = json.loads(await reader.readexactly(length))["seed"]
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                due = time.monotonic()
                for token in range(TOKENS):
                    due += pause
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
                    word = WORDS[(number * 37 + token) % len(WORDS)] + " "
                    writer.write(chunk(BODY % (json.dumps(word), "null")))
                writer.write(chunk(BODY % ('""', '"stop"')))
                writer.write(
                    chunk(json.dumps({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": TOKENS}}))
                )
                writer.write(chunk("[DONE]") + b"0\r\n\r\n")
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    port.value = server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    await server.serve_forever()


def measured(n: int, rate: float) -> str:
    """Measure one level; return its line."""
    port = multiprocessing.Value("i", 0)
    server = multiprocessing.Process(target=lambda: asyncio.run(serve(port, 1 / rate)), daemon=True)
    server.start()
    while not port.value:
        time.sleep(0.01)
    asked = ChatRequest("m", f"http://127.0.0.1:{port.value}/v1", "", 1, 600.0, model="m")
    work = Workload("w", TOKENS, 0.0, 0, 600.0, ({"ask": "x"},))
    questions = [Question(index, index, f"Question {index}?", index) for index in range(n)]
    (turn,) = turns(asked, [Planned(n, work, questions, 600.0)], limits_of(knowledge.load("guards")))
    server.terminate()
    bad = sum(record.status != "ok" for record in turn.records)
    total = sum(record.tokens for record in turn.records)
    cost = turn.client_share * turn.wall_s / total * 1e6
    return f"{n:>4} {rate:>8g} {total / turn.wall_s:>9.0f} {turn.client_share:>8.2%} {cost:>9.1f} {bad:>4}"


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    print(f"{platform.machine()}, {multiprocessing.cpu_count()} cores, Python {platform.python_version()}")
    print("   n  each/s  all/s   client's share  µs/token  bad")
    for level in sys.argv[1:] or ("1:40", "8:40", "32:10", "32:20", "32:50"):
        requests, _colon, speed = level.partition(":")
        print(measured(int(requests), float(speed)), flush=True)
