# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What else is on a node that a fabric must not disturb: networks in use, other stacks and their resources.

One `ip` and one `systemctl`; one `docker` and one `nvidia-smi` if installed; everything else comes from /proc and files. Nothing
is changed.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import Run, run_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.lldp import Neighbour, read_lldp
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.system import unit_states
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import ADDRESS, CollectionError

K3S_CONFIG = "/etc/rancher/k3s"
DOCKER_CONFIG = "/etc/docker/daemon.json"
_CONTAINER = re.compile(r"(?:docker-|/docker/)([0-9a-f]{64})")
_CIDR = re.compile(r"\d+\.\d+\.\d+\.\d+/\d+")


@dataclass(frozen=True, slots=True)
class Net:
    """An IPv4 network in use, as `address/prefix`. dev: the interface of its route, if there is one; why: the source."""

    network: str = field(metadata=ADDRESS)
    dev: str | None
    why: str


@dataclass(frozen=True, slots=True)
class Signs:
    """How to recognise a stack: units, file paths, and regular expressions for containers, cgroups and command lines.

    Files alone show that it is installed; the others, that it runs.
    """

    units: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()  # searched for in "name image"
    cgroups: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack that was found. Memory in MiB: its processes' own pages, and their GPU memory, which on a GB10 is the same
    memory. ports: TCP, listening.
    """

    id: str
    signs: tuple[str, ...]
    processes: int = 0
    memory_mib: int = 0
    ports: tuple[int, ...] = ()
    pids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Survey:
    """All readings. uplink: the interface of the default route. k3s: networks in K3s's configuration, by `pods`, `services`."""

    networks: tuple[Net, ...] = ()
    uplink: str | None = None
    k3s: dict[str, str] | None = None
    neighbours: tuple[Neighbour, ...] = ()
    stacks: tuple[Stack, ...] = ()


def read_survey(
    sysfs: Sysfs,
    run: Run,
    *,
    netdevs: t.Sequence[str] = (),
    stacks: t.Mapping[str, Signs] | None = None,
    proc_root: str = "/proc",
    system_root: str = "",
) -> Survey:
    """Read a node.

    netdevs: whose LLDP neighbours to read. stacks: by id, how to recognise each. The roots are parameters for tests.
    Raises CollectionError if `ip` fails, or for an invalid regular expression.
    """
    routes = run_json(run, ["ip", "-j", "-4", "route", "show", "table", "all"])
    if not isinstance(routes, list):
        raise CollectionError("`ip -j -4 route show table all` gave no answer. The node needs iproute2 4.18 or newer.")
    return Survey(
        networks=tuple(dict.fromkeys([*_routed(routes), *_docker(system_root)])),
        uplink=next((route.get("dev") for route in routes if route.get("dst") == "default" and route.get("dev")), None),
        k3s=_k3s(system_root),
        neighbours=tuple(read_lldp(sysfs, run, netdevs, system_root)),
        stacks=tuple(_stacks(run, stacks or {}, proc_root, system_root)),
    )


def _routed(routes: t.Sequence[t.Mapping[str, t.Any]]) -> t.Iterator[Net]:
    for route in routes:
        network = str(route.get("dst", ""))
        if route.get("type") in (None, "unicast") and _CIDR.fullmatch(network):
            yield Net(network, route.get("dev"), "route")


def _docker(system_root: str) -> t.Iterator[Net]:
    """Yield the networks that Docker may use, beside those of its existing bridges, which have routes."""
    try:
        said = from_json(_text(system_root + DOCKER_CONFIG) or "{}")
    except ValueError:
        return
    if isinstance(said, dict):
        pools = said.get("default-address-pools") or ()
        for value in (said.get("bip"), *(pool.get("base") for pool in pools if isinstance(pool, dict))):
            if isinstance(value, str) and _CIDR.fullmatch(value):
                yield Net(value, None, DOCKER_CONFIG)


def _k3s(system_root: str) -> dict[str, str] | None:
    """Return the networks of K3s's configuration; None if there is none. Both keys are plain lines of YAML or JSON."""
    folder = pathlib.Path(system_root + K3S_CONFIG)
    texts = [_text(str(path)) for path in (folder / "config.yaml", *sorted(folder.glob("config.yaml.d/*.yaml")))]
    if not any(texts):
        return None
    found = {}
    for text in texts:
        for key, name in (("cluster-cidr", "pods"), ("service-cidr", "services")):
            for value in re.findall(rf"""(?m)^[\s{{,]*["']?{key}["']?\s*:(.*)$""", text):
                networks = _CIDR.findall(value)
                found.update({name: networks[0]} if networks else {})
    return found


def _stacks(run: Run, known: t.Mapping[str, Signs], proc_root: str, system_root: str) -> t.Iterator[Stack]:
    if not known:
        return
    units = unit_states(run, sorted({unit for signs in known.values() for unit in signs.units}))
    wants_containers = any(signs.containers for signs in known.values())
    containers = _containers(run) if wants_containers else {}
    processes = _processes(proc_root)
    sockets, on_gpu = _listening(proc_root), _on_gpu(run)
    # A process belongs to its cgroup or container; its command line counts only without one of these.
    placed = {
        pid: name
        for pid, (cgroup, _command) in processes.items()
        for name, signs in known.items()
        if _any(signs.cgroups, cgroup)
        or any(_any(signs.containers, containers.get(found, "")) for found in _CONTAINER.findall(cgroup))
    }
    for name, signs in known.items():
        active = [f"unit {unit}" for unit in signs.units if units[unit][1] == "active"]
        there = [f"unit {unit}" for unit in signs.units if units[unit][0] not in ("not-found", "unknown")]
        files = [f"file {path}" for path in signs.files if pathlib.Path(system_root + path).exists()]
        running = {key: shown for key, shown in containers.items() if _any(signs.containers, shown)}
        pids = {
            pid: command.split("\0")[0]
            for pid, (cgroup, command) in processes.items()
            if placed.get(pid) == name or (pid not in placed and _any(signs.commands, command.replace("\0", " ")))
        }
        seen = [*active, *(unit for unit in there if unit not in active), *files]
        seen += [f"container {shown.split(' ')[0]}" for shown in running.values()]
        seen += [f"process {pathlib.PurePath(word).name}" for word in dict.fromkeys(pids.values()) if not running]
        if seen:
            ports = {sockets[inode] for pid in pids for inode in _sockets(proc_root, pid) if inode in sockets}
            memory = sum(_own_kib(proc_root, pid) // 1024 + on_gpu.get(pid, 0) for pid in pids)
            yield Stack(name, tuple(seen[:12]), len(pids), memory, tuple(sorted(ports)), tuple(sorted(pids)))


def _any(patterns: t.Iterable[str], text: str) -> bool:
    try:
        return any(re.search(pattern, text) for pattern in patterns)
    except re.error as exc:
        raise CollectionError(f"{exc.pattern!r} is not a regular expression: {exc}.") from exc


def _containers(run: Run) -> dict[str, str]:
    """Return Docker's running containers, "name image" by full id."""
    rc, out, _err = run(["docker", "ps", "--no-trunc", "--format", "{{.ID}} {{.Names}} {{.Image}}"])
    lines = [line.split(" ", 1) for line in out.splitlines()] if rc == 0 else []
    return {words[0]: words[1] for words in lines if len(words) == 2}


def _on_gpu(run: Run) -> dict[int, int]:
    """Return the GPU memory of processes, in MiB by pid."""
    rc, out, _err = run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"])
    found: dict[int, int] = {}
    for pid, mib in re.findall(r"(?m)^(\d+), (\d+)$", out if rc == 0 else ""):
        found[int(pid)] = found.get(int(pid), 0) + int(mib)
    return found


def _processes(proc_root: str) -> dict[int, tuple[str, str]]:
    """Return cgroup and command line of every user-space process, except this one and its ancestors."""
    own = _ancestors(proc_root)
    found = {}
    for name in _listed(proc_root):
        if name.isdigit() and name not in own:
            command = _text(f"{proc_root}/{name}/cmdline").rstrip("\0")
            if command:
                found[int(name)] = _text(f"{proc_root}/{name}/cgroup"), command
    return found


def _ancestors(proc_root: str) -> set[str]:
    found: set[str] = set()
    pid = str(os.getpid())
    while pid not in ("", "0") and pid not in found:
        found.add(pid)
        said = re.search(r"(?m)^PPid:\s*(\d+)", _text(f"{proc_root}/{pid}/status"))
        pid = said[1] if said else ""
    return found


def _listening(proc_root: str) -> dict[str, int]:
    """Return the listening TCP ports, by socket inode."""
    found = {}
    for name in ("tcp", "tcp6"):
        for line in _text(f"{proc_root}/net/{name}").splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == "0A":
                found[words[9]] = int(words[1].rsplit(":", 1)[1], 16)
    return found


def _sockets(proc_root: str, pid: int) -> t.Iterator[str]:
    folder = f"{proc_root}/{pid}/fd"
    for descriptor in _listed(folder):
        with contextlib.suppress(OSError):  # closed in the meantime
            target = os.readlink(f"{folder}/{descriptor}")  # noqa: PTH115 - as text, and there are thousands
            if target.startswith("socket:["):
                yield target[8:-1]


def _own_kib(proc_root: str, pid: int) -> int:
    """Return a process's resident memory without file mappings: counted once, unlike pages of libraries."""
    said = re.search(r"(?m)^RssAnon:\s*(\d+)", _text(f"{proc_root}/{pid}/status"))
    return int(said[1]) if said else 0


def _listed(path: str) -> list[str]:
    try:
        return os.listdir(path)  # noqa: PTH208
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
