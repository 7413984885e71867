"""The tiny model, and a real engine that serves it on the CPU without our plan and pod: for what only needs a server to ask."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import typing as t
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
if str(ROOT / "tools") not in sys.path:
    sys.path.insert(0, str(ROOT / "tools"))

from engine_parsers.sources import cache  # noqa: E402

ENGINE = ("vllm", "0.32.0+cpu")
WORKLOADS = HERE / "bench"
# Silently answers with garbage above temperature 0: its CPU sampler reads uninitialized memory.
CORRUPT = json.dumps({"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4, "prompt_lookup_min": 2})
# One process: with two busy cores the default executor brings whole answers in one burst.
UNIPROC = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}  # fmt: skip


def model(engine: pathlib.Path) -> pathlib.Path:
    """Return the folder of the tiny model, made once for each version of its script and of the engine's bin folder."""
    script = HERE / "tiny_model.py"
    return _made(engine, "tiny", script.read_bytes() + (HERE / "answers.py").read_bytes(), script)


def with_head(engine: pathlib.Path) -> pathlib.Path:
    """Return the folder of a model that has learnt the same, with a trained prediction head."""
    script = HERE / "mtp_model.py"
    made_of = b"".join((HERE / name).read_bytes() for name in ("mtp_model.py", "tiny_model.py", "answers.py"))
    return _made(engine, "mtp", made_of, script)


def wide(engine: pathlib.Path, tiny: pathlib.Path) -> pathlib.Path:
    """Return the folder of the same model, made as slow as a real one: some 60 tokens/s for one user, 600 for 32, on a core of 2026."""
    script = HERE / "wide_model.py"
    return _made(engine, "wide", script.read_bytes() + tiny.name.encode(), script, str(tiny))


def _made(engine: pathlib.Path, name: str, made_of: bytes, script: pathlib.Path, *given: str) -> pathlib.Path:
    digest = hashlib.sha256(made_of + str(engine).encode()).hexdigest()[:16]
    folder = cache() / "models" / f"{name}-{digest}"
    if not (folder / "made.txt").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        made = subprocess.run(
            [str(engine / "python"), str(script), str(folder), *given], check=False, capture_output=True, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
        assert made.returncode == 0, made.stdout + made.stderr
        (folder / "made.txt").write_text(made.stdout, encoding="utf-8")
    return folder


@contextlib.contextmanager
def served(
    engine: pathlib.Path, folder: pathlib.Path, log: pathlib.Path, *more: str, patience_s: float = 900
) -> t.Iterator[str]:
    """Serve it on loopback; yield the address of its API. more: arguments of `vllm serve`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [
        str(engine / "vllm"), "serve", str(folder), "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port),
        "--dtype", "bfloat16", "--max-model-len", "2048", "--max-num-seqs", "32", "--enforce-eager",
        "--distributed-executor-backend", "uni", *more,
    ]  # fmt: skip
    with (
        log.open("wb") as out,
        subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            env={**os.environ, **UNIPROC},
            start_new_session=True,
        ) as process,
    ):
        # One core for the engine, which leaves the others to the client: the client then takes none of the engine's time.
        os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
        try:
            _wait(process, f"http://127.0.0.1:{port}/health", log, time.monotonic() + patience_s)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def measured(
    url: str, report: pathlib.Path, settings: dict[str, t.Any], output: int | None = None, **environment: str
) -> tuple[int, dict[str, t.Any]]:
    """Measure by the playbook, as an owner does; return the exit status and the report.

    settings: variables, without their prefix `dgxspark_bench_`. output: where the playbook's output goes, as subprocess takes it.
    """
    extra = {f"dgxspark_bench_{name}": value for name, value in {"url": url, **settings}.items()}
    extra |= {"dgxspark_knowledge_dirs": [str(WORKLOADS)], "dgxspark_report_file": str(report)}
    binaries = pathlib.Path(sys.executable).parent
    collections = str(ROOT / ".cache" / "collections" / binaries.parent.name)
    done = subprocess.run(
        [str(binaries / "ansible-playbook"), "dgxspark.cluster.bench", "-e", json.dumps(extra)], check=False, cwd=ROOT, stdout=output,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": collections, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), **environment},
    )  # fmt: skip
    return done.returncode, json.loads(report.read_text(encoding="utf-8"))


def _wait(process: subprocess.Popen[bytes], health: str, log: pathlib.Path, until: float) -> None:
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(health, timeout=10):
            return
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(
                f"the engine does not serve: {log.read_text(encoding='utf-8', errors='replace')[-2000:]}"
            )
        time.sleep(0.5)
