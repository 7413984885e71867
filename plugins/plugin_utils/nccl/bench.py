# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the NCCL benchmark's ranks are given: program arguments, rendezvous, and the transport that must carry their traffic."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import from_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import hardware
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.settings import hardware_name
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.options import Plain, Variable, number, truth

GIB = 1024**3
LARGEST = 2 * GIB  # bytes of a message
LARGEST_BESIDE = GIB // 4  # beside a served model; roles/nccl/files/nccl_bench.py refuses more
LOGGED = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET"}  # the logs need these to prove the transport


@dataclass(frozen=True, slots=True)
class Choices:
    """The role's variables. floor_gib: memory that must stay available on each node. max_bytes, beside_serving: None decides by
    the nodes' facts."""

    python: str
    operations: tuple[str, ...]
    port: int
    timeout: int
    transport: str
    floor_gib: float
    vf_index: int | None = None
    max_bytes: int | None = None
    beside_serving: bool | None = None


def choices_of(variable: Variable, knowledge_dirs: t.Sequence[str]) -> Choices:
    """Return the owner's choices; a memory floor of null means the hardware class's own."""
    floor = number(variable, "nccl_bench_floor_gib", float)
    if floor is None:
        limits = hardware.health(hardware_name(variable("dgxspark_fabric")), knowledge_dirs)
        floor = limits["memory"]["warning_gib"]
    chosen = {
        "python": variable("nccl_bench_python"),
        "operations": variable("nccl_bench_operations"),
        "port": number(variable, "nccl_bench_port", int),
        "timeout": number(variable, "nccl_bench_timeout", int),
        "transport": variable("nccl_transport"),
        "floor_gib": floor,
        "vf_index": number(variable, "nccl_vf_index", int),
        "max_bytes": number(variable, "nccl_bench_max_bytes", int),
        "beside_serving": truth(variable, "nccl_bench_beside_serving"),
    }
    return from_plain(Choices, chosen, "nccl_bench")


def serves(node: t.Mapping[str, t.Any] | None) -> bool:
    """Whether a node, as read by `roce_info`, has a VF in a pod, the sign that it serves a model."""
    vfs = [vf for function in (node or {}).get("functions", []) for vf in function.get("vfs", [])]
    return any((vf.get("place") or {}).get("state") == "pod" for vf in vfs)


def plan(chosen: Choices, ranks: t.Mapping[str, str], serving: bool, host: str) -> Plain:
    """Return a host's rank as a process (`argv`, `environment`), all ranks as pods (`job`), and `expect`.

    ranks: the address of each host with a rank, in rank order. serving: whether one of them serves a model.
    """
    beside = serving if chosen.beside_serving is None else chosen.beside_serving
    usual = LARGEST_BESIDE if beside else LARGEST
    largest = usual if chosen.max_bytes is None else chosen.max_bytes
    words = ["--max-bytes", str(largest), "--floor-bytes", str(int(chosen.floor_gib * GIB))]
    words += ["--operations", *chosen.operations, *(["--beside-serving"] if beside else [])]
    return {
        "argv": [chosen.python, "-", *words],
        "environment": {**_rendezvous(ranks, host, chosen.port), **LOGGED},
        "job": {
            "arguments": words,
            "environment": dict(LOGGED),
            "port": chosen.port,
            "timeout_s": chosen.timeout,
            "vf_index": chosen.vf_index,
        },
        "expect": "ib" if chosen.transport == "roce" else "socket",
    }


def _rendezvous(ranks: t.Mapping[str, str], host: str, port: int) -> dict[str, str]:
    """Return the rendezvous variables of PyTorch's ranks; empty for a host without a rank."""
    if host not in ranks:
        return {}
    return {
        "RANK": str(list(ranks).index(host)),
        "WORLD_SIZE": str(len(ranks)),
        "LOCAL_RANK": "0",
        "MASTER_ADDR": next(iter(ranks.values())),
        "MASTER_PORT": str(port),
    }
