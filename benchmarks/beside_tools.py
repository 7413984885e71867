"""Compares the bench with llama-benchy and AIPerf: one real engine on the CPU, one run, the same prompt where a tool accepts one.

Usage: beside_tools.py FOLDER_OF_AIPERF FOLDER_OF_LLAMA_BENCHY [N …]. The folders have the programs `aiperf` and `llama-benchy`; neither
is a requirement of the collection. At each N the bench and AIPerf alternate, so that both meet the same conditions; llama-benchy runs
after them as `dgxspark_bench_crosscheck`. Engine and model: tests/engines, cached with the oracle.
wall: tokens over the level's time. each: of a request, after its first token. token: between two tokens, in ms.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "engine")]

import served  # noqa: E402
import yaml  # noqa: E402
from engine_parsers import installed  # noqa: E402

Plain = dict[str, t.Any]
ROUNDS, TURNS = 4, 3
WORK = next(
    entry
    for entry in yaml.safe_load((served.WORKLOADS / "workloads" / "tiny.yml").read_text(encoding="utf-8"))["entries"]
    if entry["id"] == "tiny-counting"
)
FIGURES = "{:>4}  {:<12}  {:>8.1f}  {:>8.1f}  {:>8.1f}  {:>8.1f}"


def bench(url: str, folder: pathlib.Path, programs: str, **more: t.Any) -> Plain:
    """Measure with the playbook; return its report."""
    settings = {"workloads": [WORK["id"]], "rounds": ROUNDS, **more}
    path = f"{programs}:{os.environ['PATH']}"
    status, report = served.measured(
        url, folder / "bench.json", settings, subprocess.DEVNULL, PATH=path, HOME=str(folder)
    )
    if status:
        raise SystemExit(f"bench.yml ended with {status}")
    return report


def ours(report: Plain) -> list[tuple[float, ...]]:
    """Return wall, each, first token and token of each level."""
    return [
        (
            figures["wall_tokens_per_s"], figures["per_request_tokens_per_s"], 1000 * figures["ttft_median_s"],
            1000 * figures["itl_median_s"],
        )
        for level in report["workloads"][0]["levels"]
        for figures in [level["figures"]]
    ]  # fmt: skip


def aiperf(program: pathlib.Path, url: str, model: pathlib.Path, n: int, folder: pathlib.Path) -> tuple[float, ...]:
    """Measure with AIPerf; return the same figures."""
    (folder / "asked.jsonl").write_text(json.dumps({"text": WORK["prompts"][0]["ask"]}) + "\n", encoding="utf-8")
    command = [
        str(program), "profile", "--model", "tiny", "--url", url.removesuffix("/v1"), "--endpoint-type", "chat", "--streaming",
        "--concurrency", str(n), "--request-count", str(n * ROUNDS), "--tokenizer", str(model), "--use-server-token-count",
        "--input-file", str(folder / "asked.jsonl"), "--custom-dataset-type", "single_turn",
        "--extra-inputs", json.dumps({"temperature": 0, "max_tokens": WORK["max_tokens"]}),
        "--artifact-dir", str(folder / f"aiperf-{n}"), "--ui", "simple",
    ]  # fmt: skip
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "HOME": str(folder)},
    )
    found = sorted((folder / f"aiperf-{n}").rglob("profile_export_aiperf.json"))
    if not found:
        raise SystemExit(
            f"aiperf brought nothing (exit status {done.returncode}): {(done.stdout + done.stderr)[-2000:]}"
        )
    made = json.loads(found[-1].read_text(encoding="utf-8"))
    return (
        made["output_token_throughput"]["avg"],
        made["output_token_throughput_per_user"]["p50"],
        made["time_to_first_token"]["p50"],
        made["inter_token_latency"]["p50"],
    )


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without logging requests."""

    def log_message(self, format: str, *args: t.Any) -> None:
        """Log nothing."""


@contextlib.contextmanager
def book() -> t.Iterator[str]:
    """Serve the text for llama-benchy's prompts; yield its address."""
    handler = functools.partial(Quiet, directory=str(ROOT / "docs" / "docsite" / "rst"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/guide_serving.rst"
        server.shutdown()


def main() -> None:
    """Serve, measure, print the medians."""
    with_aiperf, with_benchy, *given = sys.argv[1:]
    levels = [int(n) for n in given] or [1, 4, 8]
    engine = installed.environment(*served.ENGINE) / "bin"
    model = served.model(engine)
    with (
        tempfile.TemporaryDirectory(prefix="beside-") as name,
        served.served(engine, model, pathlib.Path(name, "log")) as url,
        book() as text,
    ):
        folder = pathlib.Path(name)
        print("   n  tool           wall/s    each/s  TTFT ms  token ms", flush=True)
        for n in levels:
            taken: dict[str, list[tuple[float, ...]]] = {"bench": [], "aiperf": []}
            for _turn in range(TURNS):
                taken["bench"] += ours(bench(url, folder, with_benchy, levels=[n]))
                taken["aiperf"].append(aiperf(pathlib.Path(with_aiperf, "aiperf"), url, model, n, folder))
            for tool, runs in taken.items():
                print(FIGURES.format(n, tool, *map(statistics.median, zip(*runs, strict=True))), flush=True)
        arguments = ["--pp", "128", "--tg", "64", "--runs", "3", "--latency-mode", "none", "--skip-coherence"]
        arguments += ["--tokenizer", str(model), "--book-url", text]
        crossed = {"crosscheck": "llama-benchy", "crosscheck_arguments": arguments}
        report = bench(url, folder, with_benchy, levels=levels, **crossed)
        for n, found in zip(levels, ours(report), strict=True):
            print(FIGURES.format(n, "bench", *found))
        print(report["crosscheck"]["problem"] or "", flush=True)
        for row in report["crosscheck"]["levels"]:
            each = row["per_request_tokens_per_s"]
            print(FIGURES.format(row["n"], "llama-benchy", row["tokens_per_s"], each, row["ttft_ms"], 1000 / each))


if __name__ == "__main__":
    main()
