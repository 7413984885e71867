# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node reports about itself before K3s is installed, and about the K3s that it has."""

from __future__ import annotations

import json
import os
import pathlib
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils import node_files
from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import Run, run_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.k3s import layout
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FileState


@dataclass(frozen=True, slots=True)
class Installed:
    """The K3s of a node. `ours` is the record that this collection wrote at the installation; None if it did not install it."""

    version: str | None = None
    role: layout.Role | None = None
    sha256: str | None = None
    active: str = "inactive"
    enabled: str = "not-found"
    ours: dict[str, t.Any] | None = None
    token: bool = False  # whether its join tokens are there, and an agent has no server's token
    registries: bool = False  # whether the file is as wanted
    images: str | None = None  # the release whose images were installed
    archives: tuple[str, ...] = ()  # the contents of K3s's images folder
    data: bool = False
    files: tuple[FileState, ...] = ()


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU's driver, whether NVIDIA's container toolkit and runtime are installed, and whether a CDI specification matches it."""

    driver: str
    toolkit: bool
    runtime: bool
    cdi: bool


@dataclass(frozen=True, slots=True)
class Machine:
    """What a node reports. Memory in MiB; `free_mib` by path; `platform` is component -> version (see knowledge/versions)."""

    architecture: str
    platform: dict[str, str] = field(default_factory=dict)
    memory_mib: int = 0
    swap_mib: int = 0
    memory_controller: bool = False
    addresses: dict[str, tuple[str, ...]] = field(default_factory=dict)
    listening: tuple[int, ...] = ()
    free_mib: dict[str, int] = field(default_factory=dict)
    gpu: Gpu | None = None
    k3s: Installed = Installed()


def read_machine(run: Run, *, data: str = layout.DATA, registries: str | None = None) -> Machine:
    """Read a node with two or three commands; the rest comes from files.

    data: K3s's folder. registries: the wanted content of registries.yaml (a secret: the answer is only whether it matches).
    """
    system = os.uname()
    meminfo = dict(re.findall(r"^(\w+):\s+(\d+)", _text("/proc/meminfo"), re.MULTILINE))
    driver = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\d[\d.]+)", _text("/proc/driver/nvidia/version"))
    gpu = _gpu(driver[1]) if driver else None
    return Machine(
        architecture=system.machine,
        platform=_platform(system.release, driver[1] if driver else None),
        memory_mib=int(meminfo.get("MemTotal", 0)) // 1024,
        swap_mib=int(meminfo.get("SwapTotal", 0)) // 1024,
        memory_controller=_memory_controller(),
        addresses=_addresses(run),
        listening=tuple(sorted(_listening())),
        free_mib={
            path: node_files.free_mib(path) for path in (str(pathlib.Path(layout.BINARY).parent), layout.OURS, data)
        },
        gpu=gpu,
        k3s=read_installed(run, data=data, registries=registries),
    )


def read_installed(run: Run, *, data: str = layout.DATA, registries: str | None = None) -> Installed:
    """Read the K3s installation of a node."""
    record = _record()
    roles: list[layout.Role] = [
        role for role in t.get_args(layout.Role) if pathlib.Path(layout.unit_path(role)).exists()
    ]
    role = roles[0] if roles else None
    active, enabled = _unit(run, layout.UNITS[role]) if role else ("inactive", "not-found")
    version = None
    if pathlib.Path(layout.BINARY).exists():
        version = binary_version(run, layout.BINARY) or "unknown"
    files = tuple(_state(path) for path in (layout.CONFIG, *(layout.fixed(role) if role else ())))
    return Installed(
        version=version,
        role=role,
        sha256=_binary_digest(record) if version else None,
        active=active,
        enabled=enabled,
        ours=record,
        token=_tokens(role),
        registries=same_secret(layout.REGISTRIES, registries),
        images=(record or {}).get("images"),
        archives=_names(pathlib.Path(data, "agent/images")),
        data=pathlib.Path(data).exists(),
        files=files,
    )


def _names(folder: pathlib.Path) -> tuple[str, ...]:
    return tuple(sorted(path.name for path in folder.iterdir())) if folder.is_dir() else ()


def _tokens(role: str | None) -> bool:
    """Whether a node has the right tokens: a server its own and the agents', an agent only the agents'."""
    if role == "server" and _mode(layout.AGENT_TOKEN) != 0o600:
        return False
    there = node_files.read(layout.TOKEN)
    # K10<digest of the CA>::<user>:<password>, where the user is `server` or `node`.
    return there is not None and there[1] == 0o600 and not (role == "agent" and b"::server:" in there[0])


def same_secret(path: str, content: str | None) -> bool:
    """Whether a secret file holds exactly this, with mode 0600; with None, whether it is absent."""
    there = node_files.read(path)
    return there is None if content is None else there == (content.encode(), 0o600)


def binary_version(run: Run, path: str) -> str | None:
    """Return the version that a binary reports: `k3s version v1.36.4+k3s1 (…)`."""
    rc, out, _err = run([path, "--version"])
    match = re.search(r"^k3s version (\S+)", out, re.MULTILINE)
    return match[1] if rc == 0 and match else None


def _binary_digest(record: dict[str, t.Any] | None) -> str | None:
    """Return the binary's digest; the recorded one if neither size nor modification time has changed since."""
    seen = pathlib.Path(layout.BINARY).stat()
    stamp = [seen.st_size, seen.st_mtime_ns]
    if record and record.get("stamp") == stamp:
        return str(record["sha256"])
    return node_files.digest(layout.BINARY)


def binary_stamp() -> list[int]:
    """Return size (bytes) and modification time (ns) of the installed binary, to detect a change."""
    seen = pathlib.Path(layout.BINARY).stat()
    return [seen.st_size, seen.st_mtime_ns]


def _record() -> dict[str, t.Any] | None:
    try:
        found = json.loads(_text(layout.RECORD) or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _unit(run: Run, name: str) -> tuple[str, str]:
    _rc, out, _err = run(["systemctl", "show", "--property=ActiveState,UnitFileState", "--", name])
    said = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    return said.get("ActiveState") or "unknown", said.get("UnitFileState") or "unknown"


def _state(path: str) -> FileState:
    mode = _mode(path)
    return FileState(path, node_files.digest(path), f"{mode:04o}" if mode is not None else None)


def _mode(path: str) -> int | None:
    try:
        return pathlib.Path(path).stat().st_mode & 0o7777
    except OSError:
        return None


def _platform(kernel: str, driver: str | None) -> dict[str, str]:
    found = {"kernel": kernel, "cmdline": _text("/proc/cmdline").strip()}
    if driver:
        found["driver"] = driver
    firmware = sorted({_text(str(path)).strip() for path in pathlib.Path("/sys/class/infiniband").glob("*/fw_ver")})
    if firmware and firmware[0]:
        found["firmware"] = firmware[0]  # the oldest: functions of one card share theirs
    for folder in ("/usr/lib/aarch64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/usr/local/cuda/lib64"):
        for library in sorted(pathlib.Path(folder).glob("libnccl.so.2.*")):
            found["nccl"] = library.name.removeprefix("libnccl.so.")
    bios = _text("/sys/class/dmi/id/bios_version").strip()
    return {**found, "bios": bios} if bios[:1].isdigit() else found


def _gpu(driver: str) -> Gpu:
    specs = (layout.CDI, "/var/run/cdi/nvidia.yaml", "/etc/cdi/nvidia.json")
    return Gpu(
        driver=driver,
        toolkit=os.access(layout.TOOLKIT, os.X_OK),
        runtime=os.access(layout.RUNTIME, os.X_OK),
        cdi=any(driver in _text(path) for path in specs),
    )


def _memory_controller() -> bool:
    return "memory" in _text("/sys/fs/cgroup/cgroup.controllers").split()


def _addresses(run: Run) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for interface in run_json(run, ["ip", "-json", "address", "show"]) or []:
        local = [entry["local"] for entry in interface.get("addr_info", []) if entry.get("scope") == "global"]
        if local:
            found[str(interface["ifname"])] = tuple(map(str, local))
    return found


def _listening() -> set[int]:
    lines = [line.split() for name in ("tcp", "tcp6") for line in _text(f"/proc/net/{name}").splitlines()[1:]]
    return {int(words[1].rsplit(":", 1)[1], 16) for words in lines if len(words) > 3 and words[3] == "0A"}


def _text(path: str) -> str:
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
