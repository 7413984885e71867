"""Compares the bench's figures with the engine's own for the same requests on a served model, and shows the cost of the bench's client.

Usage: against_engine.py URL [--workload NAME] [--levels 1,8,32] [--rounds 4] [--knowledge FOLDER] [--dearer MICROSECONDS]. URL: of the
API, with /v1. The engine is vLLM, or SGLang with --enable-metrics, and must get no other requests meanwhile. Off: the bench's time over the
engine's, all requests. token: first token to last (vLLM's request_decode_time_seconds; SGLang has the difference of the other two); answer:
sending to last (e2e_request_latency_seconds); first: sending to the first token (time_to_first_token_seconds), with how much later it is,
each. Workload `greedy` is asked before each level.
"""

from __future__ import annotations

import argparse
import pathlib
import platform
import runpy
import time
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[1]
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import across, metrics  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.client import ChatRequest  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.guards import limits_of  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.measure import Bench, Result, measure  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.stream import ChatStream, Delta  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.workloads import workload_of  # noqa: E402


def grown(result: Result, name: str) -> float:
    """Return the growth of an engine's counter during the load."""
    first, last = (metrics.values_of(result.scrapes[place]) for place in (0, -1))
    return sum(
        sum(last.get(f"{engine}:{name}", ())) - sum(first.get(f"{engine}:{name}", ())) for engine in ("vllm", "sglang")
    )


def dearer(seconds: float) -> None:
    """Make each piece cost the client more time, to show how the client's own time changes the figures."""
    feed = ChatStream.feed

    def slower(stream: ChatStream, piece: bytes, now: float, final: bool = False) -> list[Delta]:
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass
        return feed(stream, piece, now, final)

    ChatStream.feed = slower  # type: ignore[method-assign]


def line(result: Result) -> str:
    """Return a level's line."""
    level, records = result.level, [record for record in result.records if record.status == "ok"]
    if not records or not result.scrapes or not grown(result, "generation_tokens_total"):
        return f"{level.n:>4} no figures: {result.message or 'no engine counts tokens at /metrics beside the API'}"
    firsts = sum(record.times[0] - record.began for record in records)
    engine_s, answer_s = (
        grown(result, f"{name}_seconds_sum") for name in ("time_to_first_token", "e2e_request_latency")
    )
    off = {
        "token": sum(r.times[-1] - r.times[0] for r in records)
        / (grown(result, "request_decode_time_seconds_sum") or answer_s - engine_s),
        "answer": sum(r.times[-1] - r.began for r in records) / answer_s,
        "first": firsts / engine_s,
    }
    shares = " ".join(f"{share - 1:>+8.2%}" for share in off.values())
    counted = level.tokens - grown(result, "generation_tokens_total")
    cost = result.client_share * t.cast(float, level.wall_s) / level.tokens * 1e6
    return (
        f"{level.n:>4} {level.ok:>4} {level.tokens:>7} {counted:>+7.0f} {shares} {(firsts - engine_s) / len(records) * 1000:>+8.1f}"
        f" {level.per_request_tokens_per_s or 0:>8.1f} {level.wall_tokens_per_s or 0:>8.0f} {result.client_share:>7.2%} {cost:>8.1f}"
        f"  {result.verdict} {result.message}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--workload", default="chat")
    parser.add_argument("--levels", default="1,8,32")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--knowledge", action="append", default=[])
    parser.add_argument(
        "--dearer", type=float, default=0.0, metavar="US", help="microseconds that each piece costs more"
    )
    given = parser.parse_args()
    if given.dearer:
        dearer(given.dearer / 1e6)
    work, guards = knowledge.load("workloads", given.knowledge), knowledge.load("guards", given.knowledge)
    levels = tuple(map(int, given.levels.split(",")))
    asked = ChatRequest("engine", given.url, "", 1, 3600.0)
    bench = Bench(
        asked,
        workload_of(given.workload, work),
        workload_of("greedy", work),
        workload_of("known", work),
        levels,
        given.rounds,
        3600.0,
    )
    print(f"{platform.machine()}, Python {platform.python_version()}, workload {given.workload}, {given.rounds} rounds")
    print("   n   ok  tokens engine's    token   answer    first    ms each each/s    all/s  client µs/token")
    for result in measure(bench, limits_of(guards), across.load_limits_of(guards)):
        print(line(result), flush=True)


if __name__ == "__main__":
    main()
