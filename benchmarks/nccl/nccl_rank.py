# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One rank of a small torch.distributed run that produces an NCCL log: started by make_logs.py, or by torchrun.

Usage: RANK=… WORLD_SIZE=… LOCAL_RANK=… MASTER_ADDR=… MASTER_PORT=… python nccl_rank.py WHAT
"""

from __future__ import annotations

import datetime
import os
import sys
import time

import torch
import torch.distributed as dist

RANK = int(os.environ.get("RANK", "0"))
WORLD = int(os.environ.get("WORLD_SIZE", "1"))
DEVICE = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
PATIENCE = datetime.timedelta(seconds=12)


def reduce(group: dist.ProcessGroup | None = None, elements: int = 1 << 18) -> None:
    """All-reduce ones, and fail if the sum is wrong."""
    value = torch.ones(elements, device=DEVICE)
    dist.all_reduce(value, group=group)
    torch.cuda.synchronize()
    wanted = dist.get_world_size(group)
    assert value[0].item() == wanted, f"{value[0].item()} instead of {wanted}"


def start(*, eager: bool = False) -> None:
    """Join the default group; with eager, create its communicator at once and split sub-groups off it."""
    torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl", timeout=PATIENCE, device_id=DEVICE if eager else None)


def allreduce() -> None:
    """One communicator."""
    start()
    for elements in (1 << 11, 1 << 18, 1 << 22):
        reduce(elements=elements)


def groups(*, eager: bool = False) -> None:
    """The world and, within it, neighbours (tensor parallel) and strides (pipeline parallel)."""
    start(eager=eager)
    reduce()
    half = WORLD // 2
    near = [list(range(half)), list(range(half, WORLD))]
    far = [[i, i + half] for i in range(half)]
    for ranks in [*near, *far]:
        group = dist.new_group(ranks, timeout=PATIENCE)
        if RANK in ranks:
            reduce(group)


def split() -> None:
    """The same groups, split off the parent communicator (ncclCommSplit)."""
    groups(eager=True)


def idle() -> None:
    """The world's communicator is created but never used; a sub-group's is used."""
    start(eager=True)
    group = dist.new_group([0, 1], timeout=PATIENCE)
    if RANK in (0, 1):
        reduce(group)
    time.sleep(1)


def sendrecv() -> None:
    """A pipeline: each rank sends to the next; no reduction."""
    start()
    value = torch.full((1 << 16,), float(RANK), device=DEVICE)
    got = torch.empty_like(value)
    work = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, value, (RANK + 1) % WORLD), dist.P2POp(dist.irecv, got, (RANK - 1) % WORLD)]
    )
    for each in work:
        each.wait()
    torch.cuda.synchronize()
    assert got[0].item() == (RANK - 1) % WORLD


def alltoall() -> None:
    """All-to-all, then an all-gather."""
    start()
    value = torch.ones(WORLD * 1024, device=DEVICE)
    got = torch.empty_like(value)
    dist.all_to_all_single(got, value)
    dist.all_gather_into_tensor(torch.empty(WORLD * value.numel(), device=DEVICE), value)
    torch.cuda.synchronize()


def killed() -> None:
    """The last rank dies after a good start; the others notice."""
    start()
    reduce()
    if RANK == WORLD - 1:
        os._exit(9)
    for _turn in range(3):
        reduce()


def absent() -> None:
    """The last rank joins but never reaches the collective."""
    start()
    if RANK == WORLD - 1:
        time.sleep(60)
    reduce()


def single() -> None:
    """All GPUs in one process, without torch.distributed (ncclCommInitAll)."""
    from torch.cuda import nccl

    values = [torch.ones(1 << 18, device=f"cuda:{i}") for i in range(int(os.environ["NCCL_LOG_GPUS"]))]
    nccl.all_reduce(values)
    torch.cuda.synchronize()
    assert values[0][0].item() == len(values)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    if dist.is_initialized():
        dist.destroy_process_group()
    print(f"RESULT rank {RANK}: done", flush=True)
