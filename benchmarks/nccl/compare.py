# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One rank: compares the NCCL benchmark's timing with a bare torch all-reduce loop, alternating in one run.

Rank 0 prints `COMPARE {…}` for each size: both medians (µs), and the median of the pairs' differences, since two consecutive
rounds share the machine's conditions. Started by gpu_check.py.
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
ROUNDS = 31
# Calls of some 30 µs are bound by the launching CPU and vary by a third between rounds, so they get more rounds.
SMALL, SMALL_ROUNDS = 1 << 20, 301


def bare(value: torch.Tensor, calls: int) -> float:
    """Time the obvious way: a loop of all-reduces between two synchronizations (seconds per call, on the slowest rank)."""
    dist.barrier()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _turn in range(calls):
        dist.all_reduce(value)
    torch.cuda.synchronize()
    return nccl_bench.slowest((time.perf_counter() - begin) / calls, value.device)


def main() -> None:
    """Measure each size in alternating rounds, swapping the order."""
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    largest = int(os.environ.get("COMPARE_LARGEST", str(SIZES[-1])))
    for size in (size for size in SIZES if size <= largest):
        call, real = nccl_bench.make("all_reduce", size, dist.get_world_size(), device)
        value = torch.zeros(size // 4, device=device)
        rounds, seconds = (SMALL_ROUNDS, 0.01) if size <= SMALL else (ROUNDS, 0.04)
        calls = nccl_bench.calls_for(call, device, seconds, 2000)
        bare(value, calls)
        ours, plain = [], []
        for number in range(rounds):
            if number % 2:
                plain.append(bare(value, calls))
            ours.append(nccl_bench.one_round(call, device, calls))
            if not number % 2:
                plain.append(bare(value, calls))
        del call, value
        if dist.get_rank() == 0:
            one, other = statistics.median(ours) * 1e6, statistics.median(plain) * 1e6
            pairs = statistics.median(mine / theirs for mine, theirs in zip(ours, plain, strict=True)) - 1
            row = {"bytes": real, "bench_us": round(one, 2), "bare_us": round(other, 2), "rounds": rounds}
            print(f"COMPARE {json.dumps({**row, 'difference': round(pairs, 4)})}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
