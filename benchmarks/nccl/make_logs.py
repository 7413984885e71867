# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make real NCCL logs on two or four GPUs of one host, one file per rank, with the true outcome of each case beside them.

Usage: python3 benchmarks/nccl/make_logs.py --out FOLDER [--gpus 4] [--seconds 470]
Writes FOLDER/nccl-logs.tar.gz (cases/<case>/rank<N>.log, manifest.json) and FOLDER/manifest.json.

NCCL_HOSTID simulates two "nodes" on one host: ranks with different ids use neither P2P nor shared memory. There are no
RDMA devices, so no case covers InfiniBand or RoCE. The environment's NVLS setting is kept.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import queue
import signal
import socket
import subprocess
import sys
import tarfile
import time
import typing as t

HERE = pathlib.Path(__file__).resolve().parent
CASE_SECONDS = 55.0
MOST_BYTES = 1_500_000  # of one rank's log
DEBUG = {"NCCL_DEBUG": "INFO"}
APART = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}


@dataclasses.dataclass(frozen=True)
class Case:
    """One run: its program, number of ranks and environment, and the true outcome.

    nodes: ranks are distributed over this many simulated hosts, in order. per_rank: environment of single ranks.
    verdict and cause: what a reader of all logs must find.
    """

    name: str
    what: str
    ranks: int
    verdict: str
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    nodes: int = 1
    cause: str = ""
    per_rank: dict[int, dict[str, str]] = dataclasses.field(default_factory=dict)
    launcher: str = "bare"


CASES = [
    Case("p2p-2", "allreduce", 2, "p2p"),
    Case("shm-2", "allreduce", 2, "p2p", {"NCCL_P2P_DISABLE": "1"}),
    Case("socket-2", "allreduce", 2, "socket", APART, cause="no RDMA device"),
    Case("nodes-2x1", "allreduce", 2, "socket", nodes=2, cause="no RDMA device"),
    Case("hca-absent", "allreduce", 2, "socket", {"NCCL_IB_HCA": "=rocep1s0f0:1"}, nodes=2, cause="HCA not there"),
    Case("hca-netdev", "allreduce", 2, "socket", {"NCCL_IB_HCA": "=enp1s0f0np0:1"}, nodes=2, cause="netdev as HCA"),
    Case("ib-forced", "allreduce", 2, "failed", {"NCCL_NET": "IB"}, nodes=2, cause="no RDMA device, fail closed"),
    Case("ib-forced-1-node", "allreduce", 2, "failed", {"NCCL_NET": "IB"}, cause="no RDMA device, fail closed"),
    Case("ib-disabled", "allreduce", 2, "socket", {"NCCL_IB_DISABLE": "1"}, nodes=2, cause="NCCL_IB_DISABLE"),
    Case("net-socket", "allreduce", 2, "socket", {"NCCL_NET": "Socket"}, nodes=2, cause="NCCL_NET=Socket"),
    Case("ifname-absent", "allreduce", 2, "failed", {"NCCL_SOCKET_IFNAME": "=eth9"}, nodes=2, cause="interface"),
    Case(
        "ifname-absent-one-rank",
        "allreduce",
        2,
        "failed",
        nodes=2,
        cause="interface of rank 1",
        per_rank={1: {"NCCL_SOCKET_IFNAME": "=eth9"}},
    ),
    Case("ifname-lo", "allreduce", 2, "socket", {"NCCL_SOCKET_IFNAME": "=lo"}, nodes=2, cause="no RDMA device"),
    Case("ib-forced-one-rank", "allreduce", 2, "failed", nodes=2, cause="rank 1", per_rank={1: {"NCCL_NET": "IB"}}),
    Case("killed-2", "killed", 2, "failed", nodes=2, cause="rank 1 dies after a good start"),
    Case("absent-2", "absent", 2, "failed", nodes=2, cause="rank 1 never comes"),
    Case("warn-only", "allreduce", 2, "unknown", {"NCCL_DEBUG": "WARN"}, nodes=2, cause="NCCL_DEBUG=WARN"),
    Case("version-only", "allreduce", 2, "unknown", {"NCCL_DEBUG": "VERSION"}, nodes=2, cause="NCCL_DEBUG=VERSION"),
    Case("subsys-net", "allreduce", 2, "socket", {"NCCL_DEBUG_SUBSYS": "NET"}, nodes=2, cause="NET lines alone"),
    Case("subsys-graph", "allreduce", 2, "unknown", {"NCCL_DEBUG_SUBSYS": "GRAPH"}, nodes=2, cause="no channel lines"),
    Case("subsys-most", "allreduce", 2, "socket", {"NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,ENV,TUNING,P2P,SHM"}, nodes=2),
    Case("timestamps", "allreduce", 2, "socket", {"NCCL_DEBUG_TIMESTAMP_LEVELS": "ALL"}, nodes=2),
    Case("single-process-2", "single", 1, "p2p", {"NCCL_LOG_GPUS": "2"}),
    Case("single-process-2-shm", "single", 1, "p2p", {"NCCL_LOG_GPUS": "2", "NCCL_P2P_DISABLE": "1"}),
    Case("sendrecv-2", "sendrecv", 2, "socket", nodes=2),
    Case("p2p-4", "allreduce", 4, "p2p"),
    Case("shm-4", "allreduce", 4, "p2p", {"NCCL_P2P_DISABLE": "1"}),
    Case("socket-4", "allreduce", 4, "socket", APART),
    Case("nodes-2x2", "allreduce", 4, "socket", nodes=2),
    Case("nodes-4x1", "allreduce", 4, "socket", nodes=4),
    Case("groups-2x2", "groups", 4, "socket", nodes=2),
    Case("groups-1x4", "groups", 4, "p2p"),
    Case("split-2x2", "split", 4, "socket", nodes=2),
    Case("idle-2x2", "idle", 4, "p2p", nodes=2, cause="the world's communicator stays idle"),
    Case("sendrecv-2x2", "sendrecv", 4, "socket", nodes=2),
    Case("alltoall-2x2", "alltoall", 4, "socket", nodes=2),
    Case("killed-2x2", "killed", 4, "failed", nodes=2, cause="rank 3 dies after a good start"),
    Case("torchrun-4", "allreduce", 4, "p2p", launcher="torchrun"),
    Case("torchrun-tee-4", "groups", 4, "p2p", launcher="torchrun --tee 3"),
    Case("net-socket-2x2", "groups", 4, "socket", {"NCCL_NET": "Socket"}, nodes=2),
]


def free_port() -> int:
    """Return a TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def commands(case: Case, gpus: t.Sequence[int]) -> list[tuple[list[str], dict[str, str], str]]:
    """Return argv, environment and log name of every process of a case."""
    program = [str(HERE / "nccl_rank.py"), case.what]
    base = {**os.environ, **DEBUG, **case.env, "PYTHONUNBUFFERED": "1"}
    base |= {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)), "MASTER_ADDR": "127.0.0.1"}
    port = str(free_port())
    if case.launcher != "bare":
        extra = case.launcher.split()[1:]
        run = ["-m", "torch.distributed.run", f"--nproc-per-node={case.ranks}", f"--master-port={port}", *extra]
        return [([sys.executable, *run, *program], base, "all.log")]
    made = []
    for rank in range(case.ranks):
        env = base | {"RANK": str(rank), "WORLD_SIZE": str(case.ranks), "LOCAL_RANK": str(rank), "MASTER_PORT": port}
        if case.nodes > 1:
            env["NCCL_HOSTID"] = f"node{rank * case.nodes // case.ranks}"
        made.append(([sys.executable, *program], env | case.per_rank.get(rank, {}), f"rank{rank}.log"))
    return made


def run_case(case: Case, gpus: t.Sequence[int], folder: pathlib.Path, deadline: float) -> dict[str, t.Any]:
    """Run one case; return its entry of the manifest."""
    place = folder / "cases" / case.name
    place.mkdir(parents=True)
    entry: dict[str, t.Any] = dataclasses.asdict(case)
    began = time.monotonic()
    until = min(began + CASE_SECONDS, deadline)
    if until - began < 20:
        return entry | {"ran": False}
    started: list[tuple[str, subprocess.Popen[bytes]]] = []
    with contextlib.ExitStack() as files:
        for argv, env, name in commands(case, gpus):
            log = files.enter_context((place / name).open("wb"))
            process = subprocess.Popen(argv, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
            started.append((name, process))
        left = [process for _name, process in started]
        while any(process.poll() is None for process in left) and time.monotonic() < until:
            time.sleep(0.2)
        timed_out = [name for name, process in started if process.poll() is None]
        for _name, process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    capped = []
    for name, _process in started:
        if (place / name).stat().st_size > MOST_BYTES:
            os.truncate(place / name, MOST_BYTES)
            capped.append(name)
    return entry | {
        "ran": True,
        "exits": {name: process.returncode for name, process in started},
        "timed_out": timed_out,
        "capped": capped,
        "seconds": round(time.monotonic() - began, 1),
    }


def main() -> int:
    """Run the cases, two-GPU ones two at a time, and pack their logs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=470.0)
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    deadline = time.monotonic() + given.seconds
    folder: pathlib.Path = given.out / "work"
    folder.mkdir(parents=True)
    chosen = [c for c in CASES if c.ranks <= given.gpus and (not given.only or c.name in given.only)]
    entries: list[dict[str, t.Any]] = []
    pairs: queue.Queue[tuple[int, ...]] = queue.Queue()
    for first in range(0, given.gpus - 1, 2):
        pairs.put((first, first + 1))

    def on_a_pair(case: Case) -> dict[str, t.Any]:
        pair = pairs.get()
        try:
            return run_case(case, pair, folder, deadline)
        finally:
            pairs.put(pair)

    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, given.gpus // 2)) as pool:
        for entry in pool.map(on_a_pair, [case for case in chosen if case.ranks <= 2]):
            print(f"{entry['name']}: {entry.get('exits')} {entry.get('seconds')} s", flush=True)
            entries.append(entry)
    for case in chosen:
        if case.ranks > 2:
            entries.append(run_case(case, range(case.ranks), folder, deadline))
            print(f"{case.name}: {entries[-1].get('exits')} {entries[-1].get('seconds')} s", flush=True)
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "import torch; print(torch.__version__, torch.cuda.nccl.version(), torch.cuda.get_device_name())",
        ],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    manifest = {"made_on": said, "gpus": given.gpus, "nvls": os.environ.get("NCCL_NVLS_ENABLE"), "cases": entries}
    text = json.dumps(manifest, indent=1)
    (folder / "manifest.json").write_text(text)
    (given.out / "manifest.json").write_text(text)
    with tarfile.open(given.out / "nccl-logs.tar.gz", "w:gz") as archive:
        archive.add(folder, "nccl-logs")
    subprocess.run(["rm", "-r", str(folder)], check=True)
    return 0 if all(entry["ran"] for entry in entries) else 1


if __name__ == "__main__":
    raise SystemExit(main())
