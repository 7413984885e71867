# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's state as a file for Prometheus's node exporter (its textfile collector).

The role spark_metrics installs this on nodes with the modules that it imports, so that a metric comes from the same reading and
judgement as `verify` and `doctor`; a systemd timer runs it. An unreadable value has no sample, never a guess, and its part
reports that in dgxspark_metrics_part_ok. Base units throughout, as is Prometheus's convention.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import time
import typing as t
from collections import defaultdict

from ansible_collections.dgxspark.cluster.plugins.module_utils import node_files
from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import NOT_FOUND, TOO_LONG, Run
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.counters import (
    DATA,
    ERRORS,
    PACKETS,
    WORD,
    PortCounters,
    read_counters,
)
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.gids import judge
from ansible_collections.dgxspark.cluster.plugins.module_utils.facts import read_node
from ansible_collections.dgxspark.cluster.plugins.module_utils.health import Gpu, low_power, read_gpus
from ansible_collections.dgxspark.cluster.plugins.module_utils.netns import Enter
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.system import rank_processes, read_memory
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    CollectionError,
    Node,
    PlannedFunction,
    from_plain,
)

SETTINGS = "/etc/dgxspark/metrics.json"
KIB, MEGA = 1024, 1000000
COMMAND_S = 30
PLACES = ("host", "pod", "stranded", "unbound", "missing")

# Name -> type and help, in the order of the file.
FAMILIES = {
    "dgxspark_metrics_part_ok": ("gauge", "Whether this part of the node could be read."),
    "dgxspark_metrics_collected_timestamp_seconds": ("gauge", "When this file was written."),
    "dgxspark_function_link_up": ("gauge", "Whether a planned fabric function exists and its link is up."),
    "dgxspark_function_speed_bytes_per_second": ("gauge", "Speed of a fabric function's link."),
    "dgxspark_function_mtu_bytes": ("gauge", "MTU of a fabric function."),
    "dgxspark_function_planned_mtu_bytes": ("gauge", "Planned MTU of a fabric function."),
    "dgxspark_vf_place": ("gauge", "Where a planned VF is: 1 for its current place."),
    "dgxspark_vf_gid_ok": ("gauge", "Whether a planned VF's own address is in its GID table as RoCE v2, if it should be."),
    "dgxspark_vf_gid_index": ("gauge", "GID index of a planned VF's own address."),
    "dgxspark_vf_problem": ("gauge", "What is wrong with a planned VF, by the id that verify and doctor use for it."),
    "dgxspark_rdma_sent_bytes_total": ("counter", "Bytes that an RDMA port has sent. TCP traffic does not count."),
    "dgxspark_rdma_received_bytes_total": ("counter", "Bytes that an RDMA port has received. TCP traffic does not count."),
    "dgxspark_rdma_sent_packets_total": ("counter", "Packets that an RDMA port has sent."),
    "dgxspark_rdma_received_packets_total": ("counter", "Packets that an RDMA port has received."),
    "dgxspark_rdma_errors_total": ("counter", "Packets lost, repeated or refused by an RDMA port, by the kernel's counter."),
    "dgxspark_memory_available_bytes": ("gauge", "MemAvailable."),
    "dgxspark_memory_floor_bytes": ("gauge", "The memory guard ends a process when less memory than this is available."),
    "dgxspark_gpu_low_power": ("gauge", "Whether a busy GPU is stuck in its low-power state. An idle one cannot be judged."),
    "dgxspark_gpu_clock_hertz": ("gauge", "SM clock of a GPU."),
    "dgxspark_gpu_power_watts": ("gauge", "Power that a GPU draws."),
    "dgxspark_gpu_utilization_ratio": ("gauge", "How busy a GPU is."),
    "dgxspark_gpu_temperature_celsius": ("gauge", "Temperature of a GPU."),
    "dgxspark_gpu_temperature_limit_celsius": ("gauge", "Temperature from which a GPU is too hot."),
    "dgxspark_rank": ("gauge", "A rank of a served model runs on this node."),
    "dgxspark_verify_passed": ("gauge", "Whether verify passed, according to the report given to the role."),
    "dgxspark_verify_finished_timestamp_seconds": ("gauge", "When verify ended, according to the report given to the role."),
}  # fmt: skip

Labels = dict[str, str]
Sample = tuple[str, Labels, float]


class Verify(t.TypedDict):
    """The outcome of a verify; finished: seconds since the epoch."""

    passed: bool
    finished: float


class Settings(t.TypedDict):
    """The role's settings on the node. gid_index: the pinned one, if any. gpu: limits of knowledge/health; None without a GPU."""

    output: str
    device_ids: list[str]
    functions: list[dict[str, t.Any]]
    gid_index: int | None
    memory_floor_bytes: int
    gpu: dict[str, float] | None
    verify: Verify | None


class Place(t.NamedTuple):
    """Access to the node: the machine itself, or a test's tree."""

    sysfs: Sysfs
    run: Run
    proc_root: str = "/proc"
    netns_root: str = "/run/netns"
    pods_root: str = "/var/log/pods"
    enter: Enter | None = None


# --- the text format ------------------------------------------------------------------------------------------------


def render(samples: t.Iterable[Sample]) -> str:
    """Return samples in Prometheus's text format: each family once, with its help and type. Raises KeyError for an unknown one."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for name, labels, value in samples:
        known = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items() if text)
        by_name[name].append(f"{name}{f'{{{known}}}' if known else ''} {_number(value)}")
    lines: list[str] = []
    for name in sorted(by_name, key=list(FAMILIES).index):
        kind, text = FAMILIES[name]
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *by_name[name]]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


# --- the parts ------------------------------------------------------------------------------------------------------


def fabric(node: Node, planned: t.Sequence[PlannedFunction], gid_index: int | None) -> t.Iterator[Sample]:
    """Yield links, VF places and GIDs of a node against its plan."""
    entries, findings = judge(node, planned)
    index = {(entry.slot, entry.vf): entry.index for entry in entries}
    problem = {finding.subject.split(" ")[0]: finding.id for finding in findings}
    for plan in planned:
        function = node.function(plan.pci, plan.netdev)
        netdev = function.netdev if function else None
        labels = {"slot": plan.slot, "device": plan.netdev}
        yield "dgxspark_function_link_up", labels, bool(netdev and netdev.carrier and netdev.operstate != "down")
        yield "dgxspark_function_planned_mtu_bytes", labels, plan.mtu
        if netdev and netdev.mtu is not None:
            yield "dgxspark_function_mtu_bytes", labels, netdev.mtu
        if netdev and netdev.speed_mbps is not None:
            yield "dgxspark_function_speed_bytes_per_second", labels, netdev.speed_mbps * MEGA / 8
        there = {vf.index: vf.place.state for vf in (function.vfs if function else ())}
        for vf in plan.vfs:
            labels = {"slot": plan.slot, "vf": str(vf.index), "purpose": vf.purpose}
            for place in PLACES:
                yield "dgxspark_vf_place", {**labels, "place": place}, there.get(vf.index, "missing") == place
            seen = index.get((plan.slot, vf.index))
            pinned = seen is not None and gid_index in (None, seen)
            yield "dgxspark_vf_gid_ok", labels, pinned
            if seen is not None:
                yield "dgxspark_vf_gid_index", labels, seen
            if not pinned:
                found = problem.get(f"{plan.slot}v{vf.index}") or problem.get(plan.slot) or "gid.index-differs"
                yield "dgxspark_vf_problem", {**labels, "problem": found}, 1


def rdma(readings: t.Iterable[PortCounters], node: Node | None) -> t.Iterator[Sample]:
    """Yield the counters of RDMA ports, with PCI address and VF index if these are known."""
    owners: dict[str, Labels] = {}
    for function in node.functions if node else ():
        if function.hca:
            owners[function.hca.name] = {"pci": function.pci}
        for vf in function.vfs:
            if vf.hca:
                owners[vf.hca.name] = {"pci": function.pci, "vf": str(vf.index)}
    for reading in readings:
        labels = {"hca": reading.hca, "port": str(reading.port), **owners.get(reading.hca, {})}
        for unit, pairs, factor in (("bytes", DATA, WORD), ("packets", PACKETS, 1)):
            counted = next((pair for pair in pairs if all(name in reading.counts for name in pair)), ())
            for way, name in zip(("sent", "received"), counted, strict=False):
                yield f"dgxspark_rdma_{way}_{unit}_total", labels, reading.counts[name] * factor
        for name in ERRORS:
            if name in reading.counts:
                yield "dgxspark_rdma_errors_total", {**labels, "counter": name}, reading.counts[name]


def memory(available_kib: int | None, floor: int) -> t.Iterator[Sample]:
    """Yield available memory and its floor. Raises CollectionError if the kernel does not report it."""
    yield "dgxspark_memory_floor_bytes", {}, floor
    if available_kib is None:
        raise CollectionError("/proc/meminfo has no MemAvailable.")
    yield "dgxspark_memory_available_bytes", {}, available_kib * KIB


def gpus(found: t.Sequence[Gpu], error: str | None, limits: t.Mapping[str, float]) -> t.Iterator[Sample]:
    """Yield the state of GPUs. Raises CollectionError if they cannot be read."""
    if error:
        raise CollectionError(f"{error}.")
    for number, gpu in enumerate(found):
        stuck = low_power(gpu, limits)
        for name, value, factor in (
            ("low_power", stuck, 1.0),
            ("clock_hertz", gpu.clock_mhz, float(MEGA)),
            ("power_watts", gpu.power_w, 1.0),
            ("utilization_ratio", gpu.utilisation, 0.01),
            ("temperature_celsius", gpu.temperature_c, 1.0),
            ("temperature_limit_celsius", limits["hot_c"], 1.0),
        ):
            if value is not None:
                yield f"dgxspark_gpu_{name}", {"gpu": str(number)}, round(value * factor, 6)


_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")


def ranks(proc_root: str, pods_root: str) -> t.Iterator[Sample]:
    """Yield the ranks that run here: found by their supervisors; the model comes from the pod in the kernel's cgroup.

    The only input that a rank could forge is its command line, from which just a number is taken.
    """
    pods = {name.rpartition("_")[2]: name.split("_")[1] for name in _names(pods_root) if name.count("_") == 2}
    found = set()
    for pid, rank in rank_processes(proc_root):
        if group := _POD.search(_bytes(f"{proc_root}/{pid}/cgroup").decode(errors="replace")):
            pod = pods.get(group[1].replace("_", "-"), "")
            model, own, _rest = pod.rpartition(f"-rank{rank}-")
            found.add((model if own else "unknown", str(rank)))
    for model, number in sorted(found):
        yield "dgxspark_rank", {"model": model, "rank": number}, 1


def verified(outcome: Verify | None) -> t.Iterator[Sample]:
    """Yield the last verify's outcome, if known."""
    if outcome:
        yield "dgxspark_verify_passed", {}, outcome["passed"]
        yield "dgxspark_verify_finished_timestamp_seconds", {}, outcome["finished"]


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)  # noqa: PTH208 - /proc has thousands
    except OSError:
        return []


def _bytes(path: str) -> bytes:
    try:
        return pathlib.Path(path).read_bytes()
    except OSError:  # the process has ended
        return b""


# --- all of it ------------------------------------------------------------------------------------------------------


def collect(settings: Settings, place: Place, now: float) -> tuple[str, list[str]]:
    """Read the node; return the text, and what could not be read, in words."""
    samples: list[Sample] = []
    said: list[str] = []

    def part(name: str, read: t.Callable[[], t.Iterable[Sample]]) -> None:
        fault = None
        try:
            for sample in read():
                samples.append(sample)  # samples from before a fault count
        except (CollectionError, OSError, ValueError) as exc:
            fault = str(exc)
            said.append(f"{name}: {fault}")
        samples.append(("dgxspark_metrics_part_ok", {"part": name}, fault is None))

    node: list[Node] = []

    def read_fabric() -> t.Iterable[Sample]:
        planned = [from_plain(PlannedFunction, plain) for plain in settings["functions"]]
        node.append(
            read_node(
                place.sysfs,
                place.run,
                device_ids=settings["device_ids"],
                proc_root=place.proc_root,
                netns_root=place.netns_root,
                enter=place.enter,
                details=False,
            )
        )
        return fabric(node[0], planned, settings["gid_index"])

    part("fabric", read_fabric)
    part("rdma", lambda: rdma(read_counters(place.sysfs), next(iter(node), None)))
    part("memory", lambda: memory(read_memory(place.proc_root), settings["memory_floor_bytes"]))
    if settings["gpu"] is not None:
        limits = settings["gpu"]
        part("gpu", lambda: gpus(*read_gpus(place.run), limits))
    part("ranks", lambda: ranks(place.proc_root, place.pods_root))
    samples += verified(settings["verify"])
    samples.append(("dgxspark_metrics_collected_timestamp_seconds", {}, round(now)))
    return render(samples), said


def command(argv: t.Sequence[str]) -> tuple[int, str, str]:
    """Run a command as a commands.Run."""
    try:
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            argv, capture_output=True, text=True, check=False, timeout=COMMAND_S, env={**os.environ, "LC_ALL": "C"}
        )
    except OSError as exc:
        return NOT_FOUND, "", f"{argv[0]}: {exc.strerror}"
    except subprocess.TimeoutExpired:
        return TOO_LONG, "", f"{argv[0]}: no answer within {COMMAND_S} s"
    return done.returncode, done.stdout, done.stderr


def main(path: str = SETTINGS, place: Place | None = None) -> int:
    """Write the file. 0: everything was read; 1: the file was written, and says what could not be read; 2: it was not written."""
    try:
        settings: Settings = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        sys.stderr.write(f"{path} cannot be used ({exc}). The role spark_metrics writes it.\n")
        return 2
    output = pathlib.Path(settings["output"])
    text, said = collect(settings, place or Place(Sysfs(), command), time.time())
    try:
        if not output.parent.is_dir():
            raise CollectionError(f"{output.parent} is not there. The package prometheus-node-exporter makes it.")
        node_files.write(str(output), text.encode(), 0o644)
    except CollectionError as exc:
        sys.stderr.write(f"{exc}\n")
        return 2
    sys.stderr.write("".join(f"{line}\n" for line in said))
    return int(bool(said))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1] if len(sys.argv) > 1 else SETTINGS))
