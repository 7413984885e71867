# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Time NCCL's all-reduce and all-gather by message size: one rank, in a bare process or a pod. Needs torch, no MPI.

Usage: RANK=… WORLD_SIZE=… LOCAL_RANK=… MASTER_ADDR=… MASTER_PORT=… python nccl_bench.py [options]

Rank 0 prints one JSON line per measured size (`NCCL_BENCH {…}`) and a last one (`NCCL_BENCH_END {…}`). Times are in
microseconds, sizes in bytes: of the buffer for all_reduce, of the gathered result for all_gather (as nccl-tests counts).
Bandwidths are worked out where the lines are read. Exit status 3: refused for want of memory; 4: it cannot run here, for
want of PyTorch, NCCL or a GPU; either with a sentence on stderr. --check only sees whether it can, and needs no variables.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import time
import typing as t

CANNOT = 4
try:
    import torch
    import torch.distributed as dist
except (ImportError, OSError) as exc:
    print(f"{sys.executable} has no PyTorch that can be loaded: {exc}", file=sys.stderr)
    raise SystemExit(CANNOT) from None

OPERATIONS = ("all_reduce", "all_gather")
BESIDE_SERVING = 256 * 1024 * 1024  # largest message beside a model that is served
ITEM = 4  # bytes of a float32
REFUSED = 3


def sizes(smallest: int, largest: int) -> list[int]:
    """Return the message sizes: powers of two times the smallest, up to the largest."""
    made = [smallest]
    while made[-1] * 2 <= largest:
        made.append(made[-1] * 2)
    return made


def memory_needed(largest: int, reserve: int) -> int:
    """Return the bytes that a run takes on one rank: input and result of the largest message, and what CUDA takes."""
    return 2 * largest + reserve


def mem_available() -> int:
    """Return the kernel's MemAvailable in bytes (on GB10 it is the GPU's memory, too)."""
    with open("/proc/meminfo", encoding="ascii") as lines:  # noqa: PTH123
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    raise SystemExit("/proc/meminfo has no MemAvailable")


def make(operation: str, size: int, world: int, device: torch.device) -> tuple[t.Callable[[], object], int]:
    """Return a call of the operation on buffers of its own, and the size that it really has (a multiple of the ranks)."""
    if operation == "all_reduce":
        buffer = torch.zeros(size // ITEM, dtype=torch.float32, device=device)
        return (lambda: dist.all_reduce(buffer)), buffer.numel() * ITEM
    part = torch.zeros(max(1, size // ITEM // world), dtype=torch.float32, device=device)
    whole = torch.empty(part.numel() * world, dtype=torch.float32, device=device)
    return (lambda: dist.all_gather_into_tensor(whole, part)), whole.numel() * ITEM


def slowest(seconds: float, device: torch.device) -> float:
    """Return the longest of all ranks' times."""
    took = torch.tensor([seconds], dtype=torch.float64, device=device)
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    return took.item()


def one_round(call: t.Callable[[], object], device: torch.device, calls: int) -> float:
    """Return the mean time of one of so many calls in seconds, on the slowest rank."""
    dist.barrier()
    torch.cuda.synchronize(device)
    begin = time.perf_counter()
    for _turn in range(calls):
        call()
    torch.cuda.synchronize(device)
    return slowest((time.perf_counter() - begin) / calls, device)


def calls_for(call: t.Callable[[], object], device: torch.device, seconds: float, most: int) -> int:
    """Warm up; return how many calls take about so long, the same number on every rank."""
    once = min(one_round(call, device, 3) for _turn in range(3))
    return max(2, min(most, int(seconds / max(once, 1e-6))))


def measure(
    call: t.Callable[[], object], device: torch.device, *, rounds: int, seconds: float, most: int
) -> tuple[int, list[float]]:
    """Time rounds of equally many calls; return how many and the mean time of one call (µs) in each round."""
    calls = calls_for(call, device, seconds / rounds, most)
    return calls, [round(one_round(call, device, calls) * 1e6, 2) for _turn in range(rounds)]


def check(device: torch.device, world: int) -> None:
    """Fail where a sum or a gathered result is wrong."""
    rank = dist.get_rank()
    value = torch.full((1024,), float(rank + 1), device=device)
    parts = torch.empty(1024 * world, device=device)
    dist.all_gather_into_tensor(parts, value)
    dist.all_reduce(value)
    if value[0].item() != world * (world + 1) / 2 or parts[-1].item() != world:
        raise SystemExit(f"rank {rank}: wrong result: {value[0].item()}, {parts[-1].item()}")


def refuse_without_gpu(number: int) -> None:
    """End with status 4 where this process has no GPU of that number, or no NCCL."""
    lacks = []
    if not torch.cuda.is_available():
        lacks.append("PyTorch sees no GPU")
    elif torch.cuda.device_count() <= number:
        lacks.append(f"there is no GPU {number}, but {torch.cuda.device_count()} in all")
    if not dist.is_nccl_available():
        lacks.append("PyTorch was built without NCCL")
    if lacks:
        print(f"{' and '.join(lacks)} (PyTorch {torch.__version__}).", file=sys.stderr)
        raise SystemExit(CANNOT)


def refuse_without_memory(given: argparse.Namespace, device: torch.device) -> None:
    """End all ranks with status 3 where one of them would fall below its floor."""
    left = mem_available() - memory_needed(given.max_bytes, given.reserve_bytes)
    short = torch.tensor([1 if given.floor_bytes and left < given.floor_bytes else 0], device=device)
    if short.item():
        print(
            f"rank {dist.get_rank()}: {mem_available()} bytes of memory are available; after the benchmark's own "
            f"{memory_needed(given.max_bytes, given.reserve_bytes)} less than the floor of {given.floor_bytes} would be "
            "left. Give a smaller --max-bytes, or run it while nothing is served.",
            file=sys.stderr,
        )
    dist.all_reduce(short)
    if short.item():
        dist.destroy_process_group()
        raise SystemExit(REFUSED)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", nargs="+", choices=OPERATIONS, default=list(OPERATIONS))
    parser.add_argument("--min-bytes", type=int, default=8 * 1024)
    parser.add_argument("--max-bytes", type=int, default=2 * 1024**3)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each size")
    parser.add_argument("--most-calls", type=int, default=2000, help="in a round")
    parser.add_argument("--floor-bytes", type=int, default=0, help="MemAvailable that must be left; 0: not looked at")
    parser.add_argument(
        "--reserve-bytes", type=int, default=1024**3, help="what CUDA and NCCL take beside the messages"
    )
    parser.add_argument("--beside-serving", action="store_true", help="a model is served: small messages, floor needed")
    parser.add_argument("--check", action="store_true", help="only see whether it can run here")
    given = parser.parse_args()
    if given.beside_serving and (given.max_bytes > BESIDE_SERVING or not given.floor_bytes):
        parser.error(f"--beside-serving needs --floor-bytes and --max-bytes of at most {BESIDE_SERVING}")
    if not ITEM <= given.min_bytes <= given.max_bytes:
        parser.error("--min-bytes is above --max-bytes, or below 4")
    return given


def main() -> None:
    """Join the group, check, measure, report."""
    given = arguments()
    number = int(os.environ.get("LOCAL_RANK", "0"))
    refuse_without_gpu(number)
    if given.check:
        return
    device = torch.device("cuda", number)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=300))
    world, first = dist.get_world_size(), dist.get_rank() == 0
    refuse_without_memory(given, device)
    check(device, world)
    for operation in given.operations:
        for size in sizes(given.min_bytes, given.max_bytes):
            call, real = make(operation, size, world, device)
            calls, took = measure(call, device, rounds=given.rounds, seconds=given.seconds, most=given.most_calls)
            if first:
                row = {"operation": operation, "bytes": real, "ranks": world, "calls": calls, "rounds_us": took}
                print(f"NCCL_BENCH {json.dumps(row)}", flush=True)
            del call
    if first:
        about = {"torch": torch.__version__, "nccl": ".".join(map(str, torch.cuda.nccl.version())), "ranks": world}
        print(f"NCCL_BENCH_END {json.dumps({**about, 'device': torch.cuda.get_device_name(device)})}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
