# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On two GPUs of one host: compares the NCCL benchmark with a bare loop, and checks the log reader on real runs.

Usage: python3 benchmarks/nccl/gpu_check.py --out FOLDER [--seconds 240]
Needs, in the layout of this repository: benchmarks/nccl, roles/nccl/files, plugins/module_utils. Writes
FOLDER/gpu-check.json and FOLDER/gpu-check.tar.gz (the logs).
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import typing as t

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BENCH = ROOT / "roles" / "nccl" / "files" / "nccl_bench.py"
NODES = [{"NCCL_HOSTID": "node0"}, {"NCCL_HOSTID": "node1"}]
SMALL = ["--max-bytes", str(64 << 20), "--seconds", "0.3"]

# name, program and arguments, environment, whether ranks are on simulated nodes, expected verdict, expected exit
RUNS: list[tuple[str, list[str], dict[str, str], bool, str, bool]] = [
    ("compare-p2p", [str(HERE / "compare.py")], {}, False, "p2p", True),
    ("compare-tcp", [str(HERE / "compare.py")], {"COMPARE_LARGEST": str(64 << 20)}, True, "socket", True),
    ("bench-p2p", [str(BENCH), "--seconds", "0.5"], {}, False, "p2p", True),
    ("bench-socket-fallback", [str(BENCH), *SMALL], {"NCCL_IB_HCA": "=rocep1s0f0:1"}, True, "socket", True),
    ("bench-ib-fail-closed", [str(BENCH), *SMALL], {"NCCL_IB_HCA": "=rocep1s0f0:1", "NCCL_NET": "IB"}, True, "failed", False),
    ("bench-refused", [str(BENCH), "--beside-serving", "--max-bytes", "1048576", "--floor-bytes", str(1 << 50)], {}, False, "", False),
]  # fmt: skip


def judge(names: list[str]) -> dict[str, t.Any]:
    """Read the logs with the collection's own core."""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder, "ansible_collections", "dgxspark", "cluster")
        place.parent.mkdir(parents=True)
        place.symlink_to(ROOT)
        code = (
            "import json,sys\n"
            "from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl import files, log, verdict\n"
            "reader = log.Reader()\n"
            "for name in sys.argv[1:]: reader.read(name, files.read_lines(name))\n"
            "made = verdict.judge(reader.finish(), (), verdict.Expected(2))\n"
            "print(json.dumps({k: made[k] for k in ('verdict', 'complete', 'summary', 'findings')}))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, *names],
            env={**os.environ, "PYTHONPATH": folder},
            capture_output=True,
            text=True,
            check=False,
        )
    return dict(json.loads(done.stdout)) if done.returncode == 0 else {"verdict": None, "error": done.stderr[-2000:]}


def run(
    name: str, argv: list[str], env: dict[str, str], apart: bool, folder: pathlib.Path, until: float
) -> dict[str, t.Any]:
    """Start two ranks; return their exit statuses, the marked lines and the seconds."""
    began = time.monotonic()
    processes = []
    for rank in range(2):
        own = {**os.environ, "NCCL_DEBUG": "INFO", **env, **(NODES[rank] if apart else {})}
        own |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        own |= {"MASTER_PORT": str(29500 + [each[0] for each in RUNS].index(name))}
        with (folder / f"{name}-rank{rank}.log").open("wb") as log:
            processes.append(
                subprocess.Popen(
                    [sys.executable, *argv], env=own, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                )
            )
    while any(process.poll() is None for process in processes) and time.monotonic() < until:
        time.sleep(0.2)
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    text = (folder / f"{name}-rank0.log").read_text(errors="replace")
    marked = [line for line in text.splitlines() if line.startswith(("COMPARE ", "NCCL_BENCH"))]
    return {"exits": [p.returncode for p in processes], "lines": marked, "seconds": round(time.monotonic() - began, 1)}


def main() -> int:
    """Run all, compare with the expected outcome, pack the logs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    deadline = time.monotonic() + given.seconds
    folder = pathlib.Path(tempfile.mkdtemp(prefix="nccl-gpu-check-"))
    results: dict[str, t.Any] = {}
    for name, argv, env, apart, verdict, works in RUNS:
        if given.only and name not in given.only:
            continue
        if deadline - time.monotonic() < 15:
            results[name] = {"ran": False}
            continue
        done = run(name, argv, env, apart, folder, min(deadline, time.monotonic() + 90))
        done["report"] = judge([str(folder / f"{name}-rank{rank}.log") for rank in range(2)]) if verdict else {}
        done["as_expected"] = all(code == 0 for code in done["exits"]) == works and done["report"].get("verdict") == (
            verdict or None
        )
        results[name] = done
        print(
            f"{name}: exits {done['exits']}, verdict {done['report'].get('verdict')}, {done['seconds']} s", flush=True
        )
        print("\n".join(done["lines"]), flush=True)
    (given.out / "gpu-check.json").write_text(json.dumps(results, indent=1))
    with tarfile.open(given.out / "gpu-check.tar.gz", "w:gz") as archive:
        archive.add(folder, "gpu-check")
    return 0 if all(each.get("as_expected") for each in results.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
