# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures how fast and in how much memory a large NCCL log is read. The log is generated: a constructed run of four ranks, then
an engine's own lines and NCCL's line for every collective.

Usage, from the repository's root: python benchmarks/nccl_log.py [--bytes 1000000000] [--folder /tmp]
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import resource
import runpy
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.files import read_lines  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Reader  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import transport  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.verdict import Expected  # noqa: E402
from ansible_collections.dgxspark.cluster.tests.unit import nccl_logs  # noqa: E402

ENGINE = "[2026-11-21 16:05:25 TP0] Decode batch. #running-req: 4, #token: 8123, gen throughput (token/s): 84.31, #queue-req: 0"
COLLECTIVE = (
    "[0] NCCL INFO AllReduce: opCount {n:x} sendbuff 0x7f2a4000 recvbuff 0x7f2a4000 count 4096 datatype 9 op 0 root 0 "
    "comm 0x5500000 [nranks=4] stream 0x55"
)


def write(path: pathlib.Path, size: int) -> int:
    """Write a log of about `size` bytes; return its number of lines. One line in four is NCCL's."""
    job = nccl_logs.Job(nodes=4, hcas=nccl_logs.RAILS, channels=8, gids=True)
    start = nccl_logs.joined(nccl_logs.build(job), random.Random(1))
    lines = len(start)
    with path.open("w", encoding="utf-8") as file:
        file.write("\n".join(start) + "\n")
        while file.tell() < size:
            block = []
            for number in range(5000):
                rank = number % 4
                said = f"spark{rank + 1}:{4000 + rank * 7}:{4000 + rank * 7} {COLLECTIVE.format(n=lines + number)}"
                block.append(said if number % 4 == 0 else ENGINE)
            file.write("\n".join(block) + "\n")
            lines += len(block)
    return lines


def peak_mib() -> float:
    """Return the process's peak resident set in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Read a small and a large log; print lines per second and peak memory for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=1_000_000_000)
    parser.add_argument("--folder", default=None)
    given = parser.parse_args()
    signatures = transport.signatures()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for size in (given.bytes // 100, given.bytes):
            path = pathlib.Path(folder, "nccl.log")
            lines = write(path, size)
            before = peak_mib()
            wall, cpu = time.perf_counter(), time.process_time()
            reader = Reader(signatures)
            reader.read(str(path), read_lines(str(path)))
            report = transport.report(reader.finish(), Expected(4))
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            row = {
                "bytes": path.stat().st_size,
                "lines": lines,
                "verdict": report["verdict"],
                "wall_s": round(wall, 1),
                "cpu_s": round(cpu, 1),
                "lines_per_cpu_s": round(lines / cpu),
                "peak_mib_before": round(before, 1),
                "peak_mib_after": round(peak_mib(), 1),
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
