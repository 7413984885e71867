"""Reports of benchmarks, for tests of what is made of them."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import report as form

TIMES = {f"{name}_{value}_s": 0.25 for name in ("ttft", "itl") for value in ("median", "p99")}
SPEEDS = {f"{name}_tokens_per_s": 40.0 for name in ("peak", "wall", "per_request", "slowest")}
COUNTS = {"ok": 1, "failed": 0, "garbage": 0, "bursts": 0, "tokens": 30, "not_asked": 0}
LEVEL = {
    "n": 1, "verdict": "good", "message": "", "figures": {"wall_s": 1.0, **SPEEDS, **TIMES, **COUNTS, "tokens_are_counted": True},
    "causes": {}, "client_share": 0.01, "acceptance": None, "signs": [], "requests": [],
    "began": "2026-01-02T03:04:10.000Z", "ended": "2026-01-02T03:04:20.000Z", "energy": None,
}  # fmt: skip
REPORT: dict[str, t.Any] = {
    "format": form.FORMAT, "url": "http://spark1:30000/v1", "model": "acme/<Model>", "started": "2026-01-02T03:04:05Z",
    "finished": "2026-01-02T03:05:05Z", "mode": "full", "from": "pod", "client_share": 0.01,
    "acceptance": None, "power": None, "crosscheck": None, "answer": [],
    "workloads": [{"name": "chat", "levels": [LEVEL]}], "engine": {"name": "sglang", "version": None},
}  # fmt: skip
BESIDE = {
    "tool": "llama-benchy", "version": "0.4.0", "problem": None, "command": ["llama-benchy", "--model", "<Model>"],
    "levels": [{"n": 4, "runs": 3, "tokens_per_s": 123.4, "per_request_tokens_per_s": 31.5, "ttft_ms": None}],
}  # fmt: skip


def level(n: int, speed: float | None, verdict: str = "good") -> dict[str, t.Any]:
    figures = {**LEVEL["figures"], "peak_tokens_per_s": speed, "per_request_tokens_per_s": speed and speed / n}
    return {**LEVEL, "n": n, "verdict": verdict, "figures": figures}
