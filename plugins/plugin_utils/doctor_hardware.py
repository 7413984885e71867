# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the doctor finds in a node itself: memory, GPU, clock limit, PCIe links, firmware."""

from __future__ import annotations

import re
import typing as t
from collections import defaultdict

from ansible_collections.dgxspark.cluster.plugins.module_utils.health import NO_PROGRAM, low_power, weak
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import KIB_PER_GIB
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.diagnosis import Diagnosis
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.known_bad import device_findings

if t.TYPE_CHECKING:
    from ansible_collections.dgxspark.cluster.plugins.plugin_utils.doctor import SiteState


def memory(state: SiteState) -> t.Iterator[Diagnosis]:
    """Free memory against the class's floor and the plan; memory that RDMA cannot use."""
    limits = state.limits["memory"]
    for name, health in state.health.items():
        kib = health.memory.get("MemAvailable")
        if kib is None:
            state.unjudged.append((name, "free memory: /proc/meminfo has no MemAvailable"))
            continue
        free = kib / KIB_PER_GIB
        if free < limits["warning_gib"]:
            low = free < limits["error_gib"]
            yield Diagnosis(
                "memory.low",
                "error" if low else "warning",
                name,
                f"{free:.1f} GiB of memory are free; at least {limits['error_gib' if low else 'warning_gib']} are required.",
                "CPU and GPU share it. What runs there uses more than was planned.",
                "Lower mem_fraction_static or gpu_memory_utilization, or stop other workloads on the node, before it hangs.",
                source=tuple(state.limits["source"]),
            )
        elif state.needed_gib is not None and free < state.needed_gib and not _busy(state, name):
            yield Diagnosis(
                "memory.below-plan",
                "warning",
                name,
                f"{free:.1f} GiB are free and nothing is served there; the plan counts on {state.needed_gib:.1f}.",
                "Something else has used memory since it was measured, or a model that ended has not released it.",
                "Find out what (ps, free -g). Restarting the node frees what an ended engine leaves behind.",
            )
        stray = (health.memory.get("CmaFree", 0) - health.memory.get("CmaTotal", 0)) / KIB_PER_GIB
        if "stray_cma_gib" in limits and stray > limits["stray_cma_gib"]:
            yield Diagnosis(
                "memory.kho",
                "error",
                name,
                f"CmaFree is {stray:.1f} GiB above CmaTotal.",
                "The kernel reserves memory for its next boot (KHO), in which RDMA cannot register anything: ibv_reg_mr "
                "fails with ENOMEM under load.",
                "Add kho=off to the kernel's command line and restart, or boot a 6.17 kernel.",
                source=("NVIDIA/NV-Kernels#591", "MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#259"),
            )


def _busy(state: SiteState, name: str) -> bool:
    node = state.evidence.node(name)
    used = node is not None and any(
        vf.users or vf.open_by or vf.place.state == "pod" for f in node.functions for vf in f.vfs
    )
    return used or any((gpu.utilisation or 0) > 0 for gpu in state.health[name].gpus)


def gpus(state: SiteState) -> t.Iterator[Diagnosis]:
    """GPUs that cannot be read, are slow or hot."""
    limits = state.limits.get("gpu")
    if not limits:
        return
    for name, health in state.health.items():
        if health.gpu_error:
            missing = health.gpu_error == NO_PROGRAM
            yield Diagnosis(
                "gpu.unreadable",
                "error",
                name,
                f"the GPU cannot be read: {health.gpu_error}.",
                "The driver's programs are missing: the driver is not installed, or only in part."
                if missing
                else "The driver is not loaded, does not fit the kernel, or the GPU does not answer.",
                "Install the driver that DGX OS ships (nvidia-driver-580-open), and restart the node."
                if missing
                else "Check dmesg for NVRM lines. If nothing there explains it, cut the node's power for a minute.",
            )
        for gpu in health.gpus:
            stuck = low_power(gpu, limits)
            if stuck is None:
                state.unjudged.append((name, "whether the GPU is in its low-power state: that shows only under load"))
            elif stuck:
                yield Diagnosis(
                    "gpu.low-power",
                    "error",
                    name,
                    f"the GPU is {gpu.utilisation:.0f} % busy at {gpu.clock_mhz:.0f} MHz and {gpu.power_w:.0f} W.",
                    "It is stuck in a low-power state of the platform, which survives restarts of programs and of the node.",
                    "Shut the node down, pull its power plug for a minute, and start it again.",
                    source=tuple(state.limits["source"]),
                )
            elif weak(gpu, limits):
                yield Diagnosis(
                    "gpu.weak",
                    "warning",
                    name,
                    f"the GPU is {gpu.utilisation:.0f} % busy at {gpu.clock_mhz:.0f} MHz, but draws only {gpu.power_w:.0f} W.",
                    "Either its kernels only wait (for another rank, or an engine hangs), or it is in a slow state that its clock does "
                    "not show.",
                    "Ask the model (dgxspark.cluster.verify with tokens). If it does not answer, restart it; if it answers slowly, compare "
                    "with dgxspark.cluster.bench, "
                    "then shut the node down and pull its power plug for a minute.",
                    source=tuple(state.limits["source"]),
                )
            if gpu.temperature_c is not None and gpu.temperature_c >= limits["hot_c"]:
                yield Diagnosis(
                    "gpu.hot",
                    "warning",
                    name,
                    f"the GPU is at {gpu.temperature_c:.0f} °C.",
                    "It gets too little air, or the node is stacked on another one.",
                    "Improve its airflow, and limit the GPU's clock (role spark_power): 2000 MHz was 10 degrees cooler in the field.",
                    source=("MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#146",),
                )


def clock_limits(state: SiteState) -> t.Iterator[Diagnosis]:
    """The clock limit against the inventory's, and whether it holds."""
    slack = (state.limits.get("gpu") or {}).get("limit_slack_mhz", 0)
    remedy = "Run dgxspark.cluster.site --tags power. If the unit fails, `journalctl -u dgxspark-gpu-clock` says why."
    why_limit = "The limit keeps the GPU from the clocks at which nodes have powered off during long prefills."
    for name, health in state.health.items():
        limit, wanted = health.clock_limit, state.clock_limit
        if wanted is not None and (limit is None or limit.mhz != wanted):
            there = "has no clock limit" if limit is None else f"is limited to {limit.mhz} MHz"
            message = f"the GPU {there}; the inventory says {wanted} MHz."
            yield Diagnosis("gpu.limit-differs", "warning", name, message, why_limit, remedy)
        if limit is None:
            continue
        above = [gpu.clock_mhz for gpu in health.gpus if (gpu.clock_mhz or 0) > limit.mhz + slack]
        if not limit.active:
            message = f"the unit that limits the GPU to {limit.mhz} MHz is not active."
            yield Diagnosis("gpu.limit-inactive", "warning", name, message, why_limit, remedy)
        elif above:
            message = f"the GPU runs at {above[0]:.0f} MHz, above its limit of {limit.mhz} MHz."
            cause = "The driver was reloaded, or the limit was lifted (nvidia-smi -rgc). " + why_limit
            yield Diagnosis(
                "gpu.limit-lifted", "warning", name, message, cause, "systemctl restart dgxspark-gpu-clock on the node."
            )


def fragments(state: SiteState) -> t.Iterator[Diagnosis]:
    """Free memory in blocks too small for the next model."""
    whole = state.limits["memory"].get("whole")
    for name, health in state.health.items() if whole else ():
        # A node says these sizes: what is no number is none.
        blocks = {int(size): left for size, left in health.blocks_mib.items() if re.fullmatch(r"[0-9]{1,6}", size)}
        sizes = [size for size in blocks if size >= whole["block_mib"]]
        free = health.memory.get("MemFree", 0) / KIB_PER_GIB
        if not sizes or _busy(state, name) or free < whole["min_gib"]:
            continue
        there = blocks[min(sizes)] / 1024
        if there < whole["min_gib"]:
            yield Diagnosis(
                "memory.fragmented",
                "info",
                name,
                f"of {free:.0f} GiB of free memory only {there:.0f} GiB are in blocks of {whole['block_mib']} MiB.",
                "An engine that ran leaves memory in small blocks. The next model's weights are read more slowly from them, by up to "
                "a tenth; decoding was 3 to 5 % slower.",
                "Restart the node before it loads a model, if that matters. Neither dropping caches nor compaction helps.",
                source=tuple(state.limits["source"]),
            )


def pcie(state: SiteState) -> t.Iterator[Diagnosis]:
    """PCIe links that are narrower or slower than they should be."""
    limits = state.limits.get("pcie")
    if not limits:
        return
    for name, health in state.health.items():
        for link in health.links:
            narrow = link.width is not None and link.width < limits["width"]
            slow = link.gtps is not None and link.gtps < limits["gtps"]
            if narrow or slow:
                yield Diagnosis(
                    "function.narrow",
                    "error",
                    f"{name} {link.pci}",
                    f"its PCIe link has x{link.width} at {link.gtps} GT/s; x{limits['width']} at {limits['gtps']} is expected.",
                    "BIOS versions before April 2026 gave the second function x2; otherwise the link was negotiated badly.",
                    "Update the BIOS (fwupdmgr), then cut the node's power for a minute.",
                    source=("tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark#35",),
                )


def firmware(state: SiteState) -> t.Iterator[Diagnosis]:
    """Firmware that differs between nodes, awaits a restart, was not taken, or is known to be bad: as fwupd has it, where there is one."""
    apart: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    names: dict[str, str] = {}
    for host, device in ((host, each) for host, h in state.health.items() if h.firmware for each in h.firmware.devices):
        names.setdefault(device.kind, device.name or device.kind)
        apart[device.kind][device.version].append(host)
        if device.awaits:
            yield Diagnosis(
                "firmware.awaits",
                "warning",
                host,
                f"the firmware of {device.name} is {device.version}; {device.awaits} awaits a restart.",
                "It was installed, and takes effect with the next restart: the next power cut decides when.",
                "Restart it when its models may stop, and run dgxspark.cluster.verify.",
            )
        elif device.failed:
            yield Diagnosis(
                "firmware.failed",
                "warning",
                host,
                f"the firmware of {device.name} is still {device.version}. The last update failed: {device.failed}.",
                "The device did not take it.",
                "`fwupdmgr get-history` on the node says more. Try it again with dgxspark.cluster.update (spark_update_firmware).",
            )
        for finding in device_findings([device.name, *device.guids], device.version, state.known_bad):
            message = f"the firmware of {device.name} is {device.version}, which is on the list of known-bad versions."
            yield Diagnosis(
                finding.id, finding.severity, host, message, finding.message, finding.remedy, source=finding.source
            )
    for kind, versions in apart.items():
        if len(versions) > 1:
            told = "; ".join(f"{version} on {', '.join(hosts)}" for version, hosts in versions.items())
            usual = max(versions, key=lambda version: len(versions[version]))
            yield Diagnosis(
                "firmware.differs",
                "warning",
                ", ".join(host for version, hosts in versions.items() if version != usual for host in hosts),
                f"the firmware of {names[kind]} differs between nodes: {told}.",
                "The nodes were updated at different times, or one of them was delivered later.",
                "Bring all to one version: dgxspark.cluster.update with spark_update_firmware, one Spark first.",
            )
