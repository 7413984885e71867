# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One rank: the NCCL benchmark's way of timing beside a bare torch all-reduce loop, in turn, in one run.

Rank 0 prints `COMPARE {…}` for each size: both medians (µs) and the difference. Started by gpu_check.py.
"""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "roles" / "nccl" / "files"))

import nccl_bench

SIZES = [8 * 1024, 64 * 1024, 1 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30, 2 << 30]


def bare(size: int, device: torch.device, seconds: float) -> list[float]:
    """Time what anybody would write: a loop of all-reduces between two synchronizations."""
    value = torch.zeros(size // 4, device=device)
    for _ in range(5):
        dist.all_reduce(value)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    dist.all_reduce(value)
    torch.cuda.synchronize()
    count = torch.tensor([max(2, min(2000, int(seconds / 5 / (time.perf_counter() - begin))))], device=device)
    dist.broadcast(count, 0)
    times = []
    for _ in range(5):
        dist.barrier()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(int(count.item())):
            dist.all_reduce(value)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / int(count.item()) * 1e6)
    return times


def main() -> None:
    """Measure each size by turns: ours, bare, bare, ours."""
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    seconds = float(os.environ.get("COMPARE_SECONDS", "1"))
    for size in SIZES:
        call, real = nccl_bench.make("all_reduce", size, dist.get_world_size(), device)
        ours = nccl_bench.measure(call, device, rounds=5, seconds=seconds, most=2000)[1]
        plain = bare(real, device, seconds) + bare(real, device, seconds)
        ours += nccl_bench.measure(call, device, rounds=5, seconds=seconds, most=2000)[1]
        del call
        if dist.get_rank() == 0:
            one, other = statistics.median(ours), statistics.median(plain)
            row = {"bytes": real, "bench_us": one, "bare_us": round(other, 2), "difference": round(one / other - 1, 4)}
            print(f"COMPARE {json.dumps(row)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
