# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's health, apart from its fabric: versions, memory, GPU, temperature, PCIe links, and what its journal says.

Three `journalctl`, one `nvidia-smi`, one `k3s --version`; everything else comes from /proc, sysfs and files. Nothing is changed.
"""

from __future__ import annotations

import os
import pathlib
import re
import time
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils import signatures
from ansible_collections.dgxspark.cluster.plugins.module_utils.certificates import read_certificates
from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import NOT_FOUND, Run
from ansible_collections.dgxspark.cluster.plugins.module_utils.firmware import Firmware, read_firmware
from ansible_collections.dgxspark.cluster.plugins.module_utils.signatures import Pattern, Reading
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.system import read_kernel, read_meminfo, read_packages

MEMORY = ("MemTotal", "MemFree", "MemAvailable", "Cached", "SwapTotal", "SwapFree", "CmaTotal", "CmaFree")
NO_PROGRAM = "nvidia-smi is not installed"
_QUERY = {
    "name": "name",
    "pstate": "pstate",
    "clock_mhz": "clocks.sm",
    "max_clock_mhz": "clocks.max.sm",
    "power_w": "power.draw",
    "temperature_c": "temperature.gpu",
    "utilisation": "utilization.gpu",
}
REBOOT = "/run/reboot-required"  # written by packages' scripts (update-notifier-common), gone after the next boot
CLOCK_UNIT = "/etc/systemd/system/dgxspark-gpu-clock.service"  # of the role spark_power
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024
MOST_ORDERS = 32
MOST_NAMED = 32
EARLIER = 1000  # lines of the previous boot: its end shows why it ended


@dataclass(frozen=True, slots=True)
class Gpu:
    """What nvidia-smi reports of a GPU. Unsupported values are None."""

    name: str | None = None
    pstate: str | None = None
    clock_mhz: float | None = None
    max_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    utilisation: float | None = None


@dataclass(frozen=True, slots=True)
class ClockLimit:
    """The GPU's clock limit that the role spark_power installed, in MHz, and whether its unit is active.

    nvidia-smi does not tell a limit that is set: the unit does, and a clock above it.
    """

    mhz: int
    active: bool


@dataclass(frozen=True, slots=True)
class PciLink:
    """The current PCIe link of a function: lanes, and GT/s for each."""

    pci: str
    width: int | None = None
    gtps: float | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """All readings. versions: by component. memory: in KiB. gpu_error: why nvidia-smi reported nothing.

    journals: what was found in each; the previous boot's has `earlier` in its name. reboot_for: the packages that ask for a
    restart of the node, as far as they say so; None if it needs none.
    """

    uptime_s: float | None = None
    time_s: float | None = None  # its clock, in seconds since 1970
    cmdline: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    gpus: tuple[Gpu, ...] = ()
    gpu_error: str | None = None
    hottest_c: float | None = None
    links: tuple[PciLink, ...] = ()
    journals: tuple[Reading, ...] = ()
    reboot_for: tuple[str, ...] | None = None
    clock_limit: ClockLimit | None = None
    blocks_mib: dict[str, int] = field(default_factory=dict)  # free memory in blocks of at least this many MiB
    certificates: dict[str, float] = field(default_factory=dict)  # when each ends, in seconds since 1970, by path
    firmware: Firmware | None = None  # None if it was not asked for


def read_health(
    sysfs: Sysfs,
    run: Run,
    patterns: t.Sequence[Pattern],
    *,
    device_ids: t.Collection[str] = (),
    packages: t.Sequence[str] = (),
    units: t.Sequence[str] = (),
    since: str | None = None,
    max_lines: int = 5000,
    proc_root: str = "/proc",
    system_root: str = "",
    certificates: t.Sequence[str] = (),
    firmware: bool = False,
) -> Health:
    """Read a node.

    patterns: what to look for in the journal. device_ids: PCI `vendor:device` of the fabric's functions. packages:
    whose versions to read. units: whose journal to read beside the kernel's. since: how far back in this boot, in
    journalctl's format. max_lines: of each journal, the newest. certificates: folders to look for them. firmware: whether fwupd is
    asked, which takes some seconds.
    """
    uptime_s, time_s = _float(_text(f"{proc_root}/uptime").split(" ")[0]), time.time()
    gpus, gpu_error = read_gpus(run)
    return Health(
        uptime_s=uptime_s,
        time_s=time_s,
        cmdline=_text(f"{proc_root}/cmdline").strip(),
        versions=read_versions(sysfs, run, packages, proc_root, system_root),
        memory={key: value for key, value in read_meminfo(proc_root).items() if key in MEMORY},
        gpus=gpus,
        gpu_error=gpu_error,
        hottest_c=_hottest(sysfs),
        links=tuple(_link(sysfs, pci) for pci in sysfs.physical_functions(device_ids)),
        journals=tuple(read_journals(run, patterns, units, since, max_lines)),
        reboot_for=read_reboot(system_root),
        clock_limit=read_clock_limit(run, system_root),
        blocks_mib=read_blocks(_text(f"{proc_root}/buddyinfo")),
        certificates=read_certificates(certificates, system_root),
        firmware=read_firmware(run, None if uptime_s is None else time_s - uptime_s) if firmware else None,
    )


def read_versions(
    sysfs: Sysfs, run: Run, packages: t.Iterable[str], proc_root: str = "/proc", system_root: str = ""
) -> dict[str, str]:
    """Return the versions by component; missing ones are left out. Packages are listed under their own names."""
    release = dict(re.findall(r'(?m)^(\w+)="?([^"\n]*)"?$', _text(f"{system_root}/etc/os-release")))
    dgx = dict(re.findall(r'(?m)^(\w+)="?([^"\n]*)"?$', _text(f"{system_root}/etc/dgx-release")))
    driver = re.search(r"NVRM version:.*?\s(\d+\.[\d.]+)\s", _text(f"{proc_root}/driver/nvidia/version"))
    k3s = re.match(r"k3s version (\S+)", run(["k3s", "--version"])[1])
    found = {
        "kernel": read_kernel(proc_root),
        "os": release.get("PRETTY_NAME"),
        "dgx_os": dgx.get("DGX_OTA_VERSION") or dgx.get("DGX_SWBUILD_VERSION"),
        "bios": sysfs.read("class/dmi/id/bios_version"),
        "product": sysfs.read("class/dmi/id/product_name"),
        "driver": driver[1] if driver else None,
        "k3s": k3s[1] if k3s else None,
    }
    installed = read_packages(packages, system_root)
    if "libnccl2" in installed:
        found["nccl"] = installed.pop("libnccl2")
    return {key: value for key, value in found.items() if value} | installed


def read_reboot(system_root: str = "") -> tuple[str, ...] | None:
    """Return the packages that ask for a restart (none where they do not say so), or None if none is pending."""
    if not pathlib.Path(f"{system_root}{REBOOT}").exists():
        return None
    names = re.findall(r"(?m)^[a-z0-9][a-z0-9+.-]{0,127}$", _text(f"{system_root}{REBOOT}.pkgs"))
    return tuple(dict.fromkeys(names))[:MOST_NAMED]


def read_clock_limit(run: Run, system_root: str = "") -> ClockLimit | None:
    """Return the clock limit that is installed on the node, or None."""
    mhz = re.search(r"(?m)^ExecStart=\S+ -lgc \d+,(\d{3,5})$", _text(f"{system_root}{CLOCK_UNIT}"))
    if mhz is None:
        return None
    _rc, out, _err = run(["systemctl", "is-active", pathlib.PurePath(CLOCK_UNIT).name])
    return ClockLimit(int(mhz[1]), out.strip() == "active")


def read_blocks(buddyinfo: str) -> dict[str, int]:
    """Return the free memory in MiB by the least size of its blocks in MiB, from 1 MiB on."""
    found: dict[int, int] = {}
    for zone in re.findall(r"(?m)^Node +\d+, zone +\S+((?: +\d+)+)", buddyinfo):
        for order, count in enumerate(zone.split()[:MOST_ORDERS]):
            kib = (PAGE_KIB << order) * int(count)
            found[order] = found.get(order, 0) + kib
    return {
        str((PAGE_KIB << order) // 1024): sum(kib for other, kib in found.items() if other >= order) // 1024
        for order in sorted(found)
        if PAGE_KIB << order >= 1024
    }


def read_gpus(run: Run) -> tuple[tuple[Gpu, ...], str | None]:
    """Return the GPUs, or why nvidia-smi lists none."""
    rc, out, err = run(["nvidia-smi", f"--query-gpu={','.join(_QUERY.values())}", "--format=csv,noheader,nounits"])
    if rc == NOT_FOUND:
        return (), NO_PROGRAM
    rows = [
        [cell.strip() for cell in line.split(",")] for line in out.splitlines() if line.count(",") >= len(_QUERY) - 1
    ]
    if rc != 0 or not rows:
        said = " ".join((out or err).split())[:300] or f"exit status {rc}"
        return (), f"nvidia-smi: {said}"
    return tuple(_gpu(dict(zip(_QUERY, row, strict=False))) for row in rows), None


def _gpu(row: t.Mapping[str, str]) -> Gpu:
    known = {key: value for key, value in row.items() if value and not value.startswith("[") and value != "N/A"}
    return Gpu(
        name=known.get("name"),
        pstate=known.get("pstate"),
        clock_mhz=_float(known.get("clock_mhz")),
        max_clock_mhz=_float(known.get("max_clock_mhz")),
        power_w=_float(known.get("power_w")),
        temperature_c=_float(known.get("temperature_c")),
        utilisation=_float(known.get("utilisation")),
    )


def low_power(gpu: Gpu, limits: t.Mapping[str, t.Any]) -> bool | None:
    """Whether a GPU is stuck in its low-power state; None if unknown, since it shows only under load.

    limits: `gpu` of knowledge/health.
    """
    if (gpu.utilisation or 0) < limits["busy_percent"] or gpu.clock_mhz is None or gpu.power_w is None:
        return None
    return bool(gpu.clock_mhz < limits["low_clock_mhz"] and gpu.power_w < limits["low_power_w"])


def weak(gpu: Gpu, limits: t.Mapping[str, t.Any]) -> bool:
    """Whether a busy GPU at a normal clock draws too little power for work. limits: `gpu` of knowledge/health."""
    busy = (gpu.utilisation or 0) >= limits["busy_percent"] and (gpu.clock_mhz or 0) >= limits["low_clock_mhz"]
    return busy and gpu.power_w is not None and gpu.power_w < limits.get("weak_power_w", 0)


def read_journals(
    run: Run, patterns: t.Sequence[Pattern], units: t.Sequence[str], since: str | None, max_lines: int
) -> t.Iterator[Reading]:
    """Look for the patterns in the kernel's journal of this boot and of the end of the previous one, and in the units'."""
    window = ["--since", since] if since else []
    common = ["journalctl", "--no-pager", "--quiet", "--output=short-iso"]
    kernel = _journal("kernel, this boot", run, [*common, "-k", "-b", "0", "-n", str(max_lines), *window], patterns)
    if kernel.error and not since:
        ring = _journal("kernel, this boot", run, ["dmesg"], patterns)
        kernel = kernel if ring.error else ring
    yield kernel
    if not since:
        yield _journal("kernel, earlier boot", run, [*common, "-k", "-b", "-1", "-n", str(EARLIER)], patterns)
    if units:
        named = [f"--unit={unit}" for unit in units]
        argv = [*common, "-b", "0", "-n", str(max_lines), *window, *named]
        yield _journal("services, this boot", run, argv, patterns)


def _journal(name: str, run: Run, argv: t.Sequence[str], patterns: t.Sequence[Pattern]) -> Reading:
    rc, out, err = run(argv)
    if rc != 0:
        said = " ".join((err or out).split())[:200] or f"exit status {rc}"
        return Reading(name, error=f"{argv[0]}: {said}")
    return signatures.scan(name, signatures.numbered(out.rstrip("\n")) if out.strip() else (), patterns)


def _hottest(sysfs: Sysfs) -> float | None:
    zones = [name for name in sysfs.names("class/thermal") if name.startswith("thermal_zone")]
    degrees = [value for zone in zones if (value := sysfs.number("class/thermal", zone, "temp")) is not None]
    return max(degrees) / 1000 if degrees else None


def _link(sysfs: Sysfs, pci: str) -> PciLink:
    speed = re.match(r"[\d.]+", sysfs.read("bus/pci/devices", pci, "current_link_speed") or "")
    return PciLink(pci, sysfs.number("bus/pci/devices", pci, "current_link_width"), _float(speed[0] if speed else None))


def _float(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _text(path: str) -> str:
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
