# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's system beside its hardware: netplan and its renderer, files, systemd units, free memory."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import stat
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import NOT_FOUND, Run, run_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.netplan import MARK, is_ours
from ansible_collections.dgxspark.cluster.plugins.module_utils.oserrors import cannot
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    FileState,
    Netplan,
    NetplanFile,
    NetplanStanza,
)

PENDING = "/var/lib/dgxspark/netplan/pending"
RANK_PROGRAMS = "/dgxspark"  # the programs' folder in a rank's container
_SUPERVISOR = re.compile(
    rb"(?:^|/)python3\x00%(at)s/supervisor\.py\x00%(at)s/rank(\d{1,4})\.json\x00" % {b"at": RANK_PROGRAMS.encode()}
)

# Of files with the same name, netplan reads the one in the last of these folders.
_NETPLAN_FOLDERS = ("/lib/netplan", "/etc/netplan", "/run/netplan")
_RENDERERS = {"systemd-networkd.service": "networkd", "NetworkManager.service": "NetworkManager"}

# YAML is not in the standard library, but where netplan is, the system's Python has it. Only what is needed to find clashes is
# returned: the files contain passwords. For the same reason an error names the line and does not quote it.
_DIGEST = """
import json, sys
answers = []
try:
    import yaml
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
except ImportError:
    yaml = None
for path in sys.argv[1:]:
    answer = {"renderer": None, "stanzas": [], "error": None}
    answers.append(answer)
    if yaml is None:
        answer["error"] = "the system's Python has no PyYAML"
        continue
    try:
        with open(path, "rb") as file:
            network = (yaml.load(file, loader) or {}).get("network") or {}
        answer["renderer"] = network.get("renderer")
        for kind, devices in network.items():
            usual = devices.get("renderer") if isinstance(devices, dict) else None
            for name, device in (devices.items() if isinstance(devices, dict) else ()):
                if isinstance(device, dict) or device is None:
                    device = device or {}
                    match = device.get("match") or {}
                    if device.get("match") == {}:
                        match = {"name": "*"}  # a match without a condition: all devices of its kind
                    needed = list(device.get("interfaces") or [])
                    needed += [device[key] for key in ("link", "peer") if device.get(key)]
                    renderer = device.get("renderer") or usual
                    answer["stanzas"].append({
                        "kind": str(kind), "id": str(name),
                        "match": {str(key): match[key] for key in match}, "set_name": device.get("set-name"),
                        "refers": [str(other) for other in needed],
                        "renderer": str(renderer) if isinstance(renderer, str) else None})
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        answer["error"] = "line %s: not valid YAML" % (mark.line + 1) if mark else "not valid YAML"
        answer["stanzas"] = []
    except (OSError, ValueError, TypeError, AttributeError) as exc:
        answer["error"] = "not in netplan's format (%s)" % type(exc).__name__
        answer["stanzas"] = []
print(json.dumps(answers, default=str))
"""


def read_system(run: Run, *, units: t.Sequence[str] = (), system_root: str = "") -> tuple[Netplan, dict[str, str]]:
    """Read netplan's configuration and the state of systemd units: at most one command for each.

    units: systemd units to look up. system_root: prefix of every path, for tests. Raises CollectionError for a file that
    may not be read.
    """
    paths = _netplan_files(system_root)
    digests = _digest(run, [system_root + path for path in paths])
    files = []
    for path, digest in zip(paths, digests, strict=True):
        state = read_file(path, system_root)
        files.append(
            NetplanFile(
                path=path,
                sha256=state.sha256 or "",
                mode=state.mode or "",
                stanzas=tuple(
                    NetplanStanza(**{**stanza, "refers": tuple(stanza["refers"])}) for stanza in digest["stanzas"]
                ),
                error=digest["error"],
                ours=_is_ours(system_root + path),
            )
        )
    said = [digest["renderer"] for digest in digests if digest["renderer"]]
    states = unit_states(run, [*units, *_RENDERERS])
    active = [_RENDERERS[unit] for unit in ([] if said else _RENDERERS) if states[unit][1] == "active"]
    renderer = str(said[-1]) if said else next(iter(active), None)
    service = next((unit for unit, name in _RENDERERS.items() if name == renderer), None)
    netplan = Netplan(
        renderer=renderer,
        service=_short(*states[service]) if service else None,
        version=read_packages(["netplan.io"], system_root).get("netplan.io"),
        files=tuple(files),
        pending=_pending(system_root),
    )
    return netplan, {unit: states[unit][0] for unit in units}


def _short(enabled: str, active: str) -> str:
    return "masked" if enabled.startswith("masked") else active


def failed_units(run: Run, pattern: str) -> tuple[str, ...]:
    """Return the loaded units of this pattern that have failed."""
    _rc, out, _err = run(["systemctl", "list-units", "--all", "--state=failed", "--plain", "--no-legend", pattern])
    return tuple(line.split()[0] for line in out.splitlines() if line.strip())


def read_file(path: str, system_root: str = "") -> FileState:
    """Return digest and mode of a file; both None if it is missing, no digest for anything but a plain file."""
    try:
        with pathlib.Path(system_root + path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            return FileState(path, hashlib.sha256(file.read()).hexdigest(), f"{stat.S_IMODE(mode):04o}")
    except (FileNotFoundError, NotADirectoryError):
        return FileState(path)
    except IsADirectoryError:
        return FileState(path, None, f"{stat.S_IMODE(pathlib.Path(system_root + path).stat().st_mode):04o}")
    except OSError as exc:
        raise cannot("read", path, exc) from exc


def read_meminfo(proc_root: str = "/proc") -> dict[str, int]:
    """Return the values of /proc/meminfo, in KiB (HugePages_* are numbers of pages)."""
    return {key: int(value) for key, value in re.findall(r"(?m)^(\S+):\s+(\d+)", _text(f"{proc_root}/meminfo"))}


def read_memory(proc_root: str = "/proc") -> int | None:
    """Return MemAvailable in KiB."""
    return read_meminfo(proc_root).get("MemAvailable")


def rank_processes(proc_root: str = "/proc") -> t.Iterator[tuple[str, int]]:
    """Yield pid and rank number of each rank of a served model that runs here, recognised by its supervisor's command line."""
    try:
        names = os.listdir(proc_root)  # noqa: PTH208 - /proc has thousands
    except OSError:
        return
    for pid in filter(str.isdigit, names):
        try:
            command = pathlib.Path(f"{proc_root}/{pid}/cmdline").read_bytes()
        except OSError:  # the process has ended
            continue
        if match := _SUPERVISOR.search(command):
            yield pid, int(match[1])


def read_ranks(proc_root: str = "/proc") -> tuple[str, ...]:
    """Return the ranks of served models that run here, as "rank0 (pid)"."""
    return tuple(sorted(f"rank{number} ({pid})" for pid, number in rank_processes(proc_root)))


def read_packages(names: t.Iterable[str], system_root: str = "") -> dict[str, str]:
    """Return the versions of those packages that are installed, from dpkg's status file: running dpkg takes a second."""
    try:
        data = pathlib.Path(f"{system_root}/var/lib/dpkg/status").read_bytes()
    except OSError:
        return {}
    found: dict[str, str] = {}
    for name in names:
        start = b"\nPackage: %s\n" % name.encode()
        begin = 0 if data.startswith(start[1:]) else data.find(start)
        entry = data[begin : data.find(b"\n\n", begin)] if begin >= 0 else b""
        match = re.search(rb"^Version: (\S+)", entry, re.MULTILINE)
        if match and b" deinstall " not in entry:
            found[name] = match[1].decode()
    return found


def read_kernel(proc_root: str = "/proc") -> str | None:
    """Return the kernel release."""
    return _text(f"{proc_root}/sys/kernel/osrelease").strip() or None


def _netplan_files(system_root: str) -> list[str]:
    by_name: dict[str, str] = {}
    for folder in _NETPLAN_FOLDERS:
        try:
            names = [path.name for path in pathlib.Path(system_root + folder).iterdir()]
        except OSError:
            continue
        by_name.update({name: f"{folder}/{name}" for name in names if name.endswith(".yaml")})
    return [by_name[name] for name in sorted(by_name)]


def _digest(run: Run, paths: t.Sequence[str]) -> list[dict[str, t.Any]]:
    if not paths:
        return []
    answers = run_json(run, ["/usr/bin/python3", "-c", _DIGEST, *paths])
    if isinstance(answers, list) and len(answers) == len(paths):
        return answers
    error = "the system's Python (/usr/bin/python3) could not read it"
    return [{"renderer": None, "stanzas": [], "error": error} for _path in paths]


def unit_state(run: Run, unit: str) -> tuple[str, str]:
    """Return whether a systemd unit is enabled ("enabled", "masked", "not-found" …) and active ("active" …)."""
    return unit_states(run, [unit])[unit]


def unit_states(run: Run, units: t.Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return whether each unit is enabled ("enabled", "disabled", "not-found" …) and active."""
    if not units:
        return {}
    rc, out, _err = run(
        ["systemctl", "show", "--property=LoadState,UnitFileState,ActiveState", "--", *units],
    )
    blocks = [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in out.split("\n\n")]
    if rc == NOT_FOUND or len(blocks) < len(units):
        return dict.fromkeys(units, ("unknown", "unknown"))
    return {
        unit: (block.get("UnitFileState") or block.get("LoadState") or "unknown", block.get("ActiveState", "unknown"))
        for unit, block in zip(units, blocks, strict=False)
    }


def _is_ours(path: str) -> bool:
    file = pathlib.Path(path)
    with file.open("rb") as opened:
        return not file.is_symlink() and is_ours(opened.read(len(MARK)).decode("utf-8", "replace"))


def _pending(system_root: str) -> str | None:
    try:
        return pathlib.Path(system_root + PENDING).read_text(encoding="utf-8").strip() or "unknown"
    except OSError:
        return None


def _text(path: str) -> str:
    try:
        return pathlib.Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""
