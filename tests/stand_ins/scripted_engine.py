"""STAND-IN for an inference engine, started as `python3 -m sglang.launch_server` or `vllm serve`: no model, and scripted words.

It takes the engine's arguments, meets the other ranks at --dist-init-addr (vLLM: --master-addr and --master-port) as they do, over
the planned addresses, and speaks the part of the OpenAI-like API that probes and clients use. A rank that loses another one *hangs*,
as real ones do in their collectives: taking the group down is not this program's work. SCRIPTED_LOAD_S: seconds that its load takes.

Imitated: chats are streamed in the form of SGLang 0.5.14 (entrypoints/openai/sse_utils.py), or, as vLLM and with SCRIPTED_AS=vllm,
of vLLM 0.17.1 (entrypoints/openai/chat_completion/serving.py): a first chunk with the role alone, a chunk a token, one with the reason, and
`usage` where it is asked for. SCRIPTED is a JSON object that says what goes wrong:

    logs             lines that each rank logs, in the order of ranks, once all have met
    says, exit       lines that the load logs, and the status with which it then ends (0 and none: it serves)
    garbage, hang, dies   from how many requests at once it says one token for ever, says no more, or ends half way
    last, status     what it logs then, and its exit status (negative: the signal that ends it)
    token_s          seconds between tokens
    by_chunk         scripts by --chunked-prefill-size, laid over the rest: what a matrix' cases differ in

A flag that SGLang 0.5.17 (of the lab's profiles) or vLLM 0.25.1 (of the first evening's) does not have ends it as argparse does, by
our tables of their parsers: a file flags.json beside this one, as images have it, else the checkout's knowledge.

What it does not imitate: values of flags, tokens (a word is one), reasoning, tool calls, /metrics, refusals of bad requests.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import pathlib
import random
import runpy
import socket
import sys
import threading
import time

RELEASES = {"sglang": "0.5.17", "vllm": "0.25.1"}
BLOCK = 4096  # bytes that ranks exchange in each step
WORDS = "six seven eight nine"
ONES = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen"
TENS = [f"{ten}{one}" for ten in ("twenty", "thirty") for one in ("", *(f"-{one}" for one in ONES.split()[:9]))]
NUMBERS = ", ".join([*ONES.split(), "nineteen", *TENS, "forty"]) + "."
# The workload `known`: words of a question → its answer.
KNOWN = {
    "217 plus 325": "542",
    "903 minus 466": "437",
    "24 times 16": "384",
    "684 divided by 4": "171",
    "158 plus 694": "852",
    "731 minus 245": "486",
    "31 times 12": "372",
    "918 divided by 6": "153",
    "France": "Paris",
    "Japan": "Tokyo",
    "after March": "April",
    "Romeo": "Shakespeare",
    "Cairo": "Egypt",
    "after Monday": "Tuesday",
    "rings": "Saturn",
    "Brazil": "South America",
}
SCRIPT = {"token_s": 0.005, "status": 1, **json.loads(os.environ.get("SCRIPTED", "{}"))}


def say(text: str) -> None:
    print(f"scripted engine: {text}", flush=True)


def end(lines: list[str], status: int) -> None:
    """Log lines as they are, and end at once, as a rank that crashes does."""
    print("\n".join(lines), flush=True)
    if status < 0:
        os.kill(os.getpid(), -status)
    os._exit(status)


def tokens_for(prompt: str, limit: int) -> list[str]:
    """Return what it says: a word goes on to nine, it counts to forty, knows what is KNOWN, and all else has words of its own."""
    if len(prompt.split()) == 1:
        said = f"{prompt} {WORDS}".split()
    elif "one to forty" in prompt:
        said = NUMBERS.split()
    elif (known := answer_of(prompt)) is not None:
        said = known.split()
    else:
        chance = random.Random(prompt)
        said = ["".join(chance.choices("abcdefghij", k=chance.randint(2, 8))) for _n in range(30)]
    return [word if number == 0 else f" {word}" for number, word in enumerate(said[:limit])]


def answer_of(prompt: str) -> str | None:
    """Return the right answer to a known question; None if it is none."""
    return next((answer for words, answer in KNOWN.items() if words in prompt), None) if "alone" in prompt else None


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

    protocol_version = "HTTP/1.1"
    model = ""
    at_once = 0
    lock = threading.Lock()

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
        if self.path == "/v1/completions":
            choice = {"index": 0, "text": f" {WORDS}", "finish_reason": "length"}
            self._answer({"id": "scripted", "model": self.model, "usage": usage(5, 4), "choices": [choice]})
        elif self.path == "/v1/chat/completions":
            with self.lock:
                Api.at_once += 1
            try:
                self._chat(asked)
            finally:
                with self.lock:
                    Api.at_once -= 1
        else:
            self.send_error(404)

    def _chat(self, asked: dict) -> None:
        prompt, limit = asked["messages"][-1]["content"], asked.get("max_tokens") or 512
        tokens = tokens_for(prompt, limit)
        counted = usage(len(prompt.split()), len(tokens))
        if not asked.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", "content": "".join(tokens)}, "finish_reason": "stop"}
            self._answer({"id": "scripted", "model": self.model, "usage": counted, "choices": [choice]})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            self._stream(tokens, limit, bool((asked.get("stream_options") or {}).get("include_usage")))
        except OSError:
            self.close_connection = True  # the client has gone

    def _stream(self, tokens: list[str], limit: int, with_usage: bool) -> None:
        self._event({"role": "assistant", "content": ""})
        count = 0
        while count < len(tokens):
            time.sleep(SCRIPT["token_s"])
            if count >= len(tokens) // 2:  # all that come at once have come by now
                self._go_wrong(tokens, limit)
            self._event({"content": tokens[count]})
            count += 1
        self._event({}, reason="length" if count == limit else "stop")
        if with_usage:
            self._chunk({"choices": [], "usage": usage(5, count)})
        self._send(b"data: [DONE]\n\n")
        self._send(b"")

    def _go_wrong(self, tokens: list[str], limit: int) -> None:
        """Do what the script says of so many requests at once."""
        if self.at_once >= SCRIPT.get("dies", float("inf")):
            end(SCRIPT.get("last", []), SCRIPT["status"])
        if self.at_once >= SCRIPT.get("hang", float("inf")):
            say(f"decode batch, #running-req: {self.at_once}")
            threading.Event().wait()
        if self.at_once >= SCRIPT.get("garbage", float("inf")):
            tokens[len(tokens) // 2 :] = ["!"] * (limit - len(tokens) // 2)

    def _event(self, delta: dict, reason: str | None = None) -> None:
        choice: dict = {"index": 0}
        if os.environ.get("SCRIPTED_AS") == "vllm":
            choice |= {"delta": delta or {"content": ""}, "logprobs": None, "finish_reason": reason}
            choice |= {"stop_reason": None} if reason else {}
        else:
            choice |= {"delta": {"reasoning_content": None, **delta}, "logprobs": None, "finish_reason": reason}
            choice |= {"matched_stop": 2 if reason == "stop" else None}
        self._chunk({"choices": [choice]})

    def _chunk(self, more: dict) -> None:
        common = {"id": "scripted", "object": "chat.completion.chunk", "created": int(time.time()), "model": self.model}
        self._send(f"data: {json.dumps({**common, **more}, separators=(',', ':'))}\n\n".encode())

    def _send(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def usage(prompt: int, completion: int) -> dict:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def known_flags(engine: str) -> set[str]:
    """Return what the imitated release's parser takes, as `--flag`."""
    listed = pathlib.Path(__file__).resolve().with_name("flags.json")
    return set(json.loads(listed.read_text(encoding="utf-8"))[engine] if listed.is_file() else tabled_flags(engine))


def tabled_flags(engine: str) -> list[str]:
    """Return all spellings of the release's flags in the checkout's table."""
    root = pathlib.Path(__file__).resolve().parents[2]
    read = runpy.run_path(str(root / "plugins/plugin_utils/version_tables.py"))["VersionTables"]
    table = read((root / f"knowledge/engines/{engine}.json").read_text(encoding="utf-8")).table(RELEASES[engine])
    found = set()
    for name, spec in table["flags"].items():
        off = [spec["off"], *spec.get("off_aliases", ())] if "off" in spec else []
        found |= {f"--{each}" for each in (name, *spec.get("aliases", ()), *off)}
    return sorted(found)


def arguments(words: list[str]) -> argparse.Namespace:
    """Return what a rank is told, of either engine under SGLang's names; end as argparse does if the release lacks a flag."""
    as_vllm = words[:1] == ["serve"]
    parser = argparse.ArgumentParser()
    if as_vllm:
        parser.add_argument("serve")
        parser.add_argument("model_path")
        parser.add_argument("--master-addr", default="127.0.0.1")
        parser.add_argument("--master-port", default="29501")
    else:
        parser.add_argument("--model-path", required=True)
        parser.add_argument("--dist-init-addr", default="127.0.0.1:0")
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000 if as_vllm else 30000)
    parser.add_argument("--chunked-prefill-size", default="")
    asked, more = parser.parse_known_args(words)
    flags = known_flags("vllm" if as_vllm else "sglang")
    strange = sorted({word.partition("=")[0] for word in more if word.startswith("--")} - flags)
    if strange:
        parser.error(f"unrecognized arguments: {' '.join(strange)}")
    if as_vllm:
        os.environ["SCRIPTED_AS"] = "vllm"
        asked.dist_init_addr = f"{asked.master_addr}:{asked.master_port}"
    return asked


def main() -> None:
    """Be a rank."""
    asked = arguments(sys.argv[1:])
    SCRIPT.update(SCRIPT.get("by_chunk", {}).get(asked.chunked_prefill_size, {}))
    host, _colon, port = asked.dist_init_addr.rpartition(":")
    say(f"rank {asked.node_rank} of {asked.nnodes} of {asked.model_path}, meeting at {asked.dist_init_addr}")
    group = Group(asked.node_rank, asked.nnodes, (host, int(port)))
    say("all ranks have met")
    for line in SCRIPT["logs"][asked.node_rank] if "logs" in SCRIPT else ():
        print(line, flush=True)
    time.sleep(float(os.environ.get("SCRIPTED_LOAD_S", "1")))
    if "says" in SCRIPT:
        print("\n".join(SCRIPT["says"]), flush=True)
    if SCRIPT.get("exit"):
        end([], SCRIPT["exit"])
    if asked.node_rank == 0:
        Api.model = asked.model_path
        server = Server((asked.host, asked.port), Api)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        say(f"serving on {asked.host}:{asked.port}")
    while True:
        group.step()
        time.sleep(0.5)


if __name__ == "__main__":
    main()
