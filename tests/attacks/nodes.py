"""Nodes whose every fact is filled in, and what is planted in one of them at a time."""

from __future__ import annotations

import copy
import dataclasses
import re
import types
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils import health, survey
from ansible_collections.dgxspark.cluster.plugins.module_utils.firmware import Device, Firmware, Release
from ansible_collections.dgxspark.cluster.plugins.module_utils.k3s.machine import Gpu, Installed, Machine
from ansible_collections.dgxspark.cluster.plugins.module_utils.lldp import Neighbour
from ansible_collections.dgxspark.cluster.plugins.module_utils.signatures import Hit, Reading
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    FileState,
    Gid,
    Hca,
    Netdev,
    Netplan,
    NetplanFile,
    NetplanStanza,
    Node,
    Place,
    Port,
    Vf,
    to_plain,
)
from ansible_collections.dgxspark.cluster.tests.unit.discovered import Site, address

Plain = dict[str, t.Any]
Path = tuple[t.Any, ...]

REPORTED = {"roce": Node, "survey": survey.Survey, "health": health.Health, "machine": Machine}


def hosts() -> dict[str, Plain]:
    """Two Sparks on one switch, in the form that discover takes, with a value in every fact."""
    site = Site(2)
    site.wire((1, 0), (2, 0))
    found = site.hosts()
    for number, host in enumerate(found.values(), 1):
        _fill(host, number)
    return found


def _fill(host: Plain, number: int) -> None:
    functions = host["roce"]["functions"]
    gid = Gid(3, "::ffff:10.9.0.1", "RoCE v2", "enp1s0f0v0")
    hca = Hca("rocep1s0f0v0", "0200:00ff:fe00:0001", (Port(1, "ACTIVE", "LINK_UP", "Ethernet", 100.0, 4096, (gid,)),))
    netdev = Netdev(
        "enp1s0f0v0", "02:d6:00:00:00:01", 9000, "up", True, 100000, ("10.9.0.1/24",), routes=("10.9.0.0/24",)
    )
    vf = Vf(0, "0000:01:00.2", "mlx5_core", netdev, hca, "02:d6:00:00:00:01", True, False)
    pod = Place("pod", "/run/netns/cni-1", 3)
    vf = dataclasses.replace(vf, place=pod, users=("python3 (77)",), open_by=("python3 (78)",))
    functions[0]["vfs"] = [to_plain(vf)]
    for function in functions:
        function |= {"driver_version": "6.17", "phys_switch": "ab01", "eswitch": "legacy", "hca": to_plain(hca)}
    stanza = NetplanStanza(
        "ethernets", "lan", {"name": functions[0]["netdev"]["name"]}, "lan0", ("bond0",), renderer="networkd"
    )
    file = NetplanFile("/etc/netplan/40-cx7.yaml", "a" * 64, "0600", (stanza,), "line 3: not YAML")
    host["roce"] |= {
        "ranks": ["rank0 (99)"],
        "netplan": to_plain(Netplan("networkd", "active", "1.1", (file,), "sriov: file")),
        "files": [to_plain(FileState("/etc/dgxspark/fabric.json", "b" * 64, "0644"))],
        "units": {"dgxspark-fabric.service": "enabled"},
        "rdma_netns": "shared",
        "changing": "netplan_vf, since 12:00",
        "failed": ["nvidia-persistenced.service"],
        "record_fault": "not JSON",
    }
    stack = survey.Stack("ollama", ("unit ollama.service",), 1, 4096, (11434,), (1234,))
    uplink = host["roce"]["functions"][0]["netdev"]["name"]
    neighbour = Neighbour(uplink, "aa:bb:cc:dd:ee:ff", "swp1", "switch-1", True)
    host["survey"] = to_plain(
        survey.Survey(
            (survey.Net(f"{address(number)}/24", "enP7s7", "route"), survey.Net("172.17.0.0/16", None, "docker")),
            "enP7s7",
            {"pods": "10.42.0.0/16", "services": "10.43.0.0/16"},
            (neighbour,),
            (stack,),
        )
    )
    hit = Hit("gpu-xid", 3, 9, 2, "NVRM: Xid 79", {"code": "79"})
    host["health"] = to_plain(
        health.Health(
            90000.0,
            1.8e9,
            "quiet",
            {"kernel": "6.17.0", "driver": "580.159.03", "bios": "5.36", "dgx_os": "7.2"},
            {"MemTotal": 127 * 2**20, "MemAvailable": 100 * 2**20},
            (health.Gpu("NVIDIA GB10", "P0", 2411.0, 3003.0, 61.0, 70.0, 96.0),),
            "no answer",
            71.0,
            (health.PciLink("0000:01:00.0", 4, 32.0),),
            (Reading("kernel, this boot", 900, (hit,), "cut off"),),
            ("linux-image-6.17.0-1021-nvidia",),
            blocks_mib={"32": 70 * 1024},
            certificates={"/var/lib/rancher/k3s/agent/client-kubelet.crt": 1.9e9},
            firmware=Firmware(
                (
                    Device(
                        "a" * 40, ("guid",), "EC", "1.0", ("locked",), ("in-use",), (Release("2.0"),), "2.0", "failed"
                    ),
                ),
                "no answer",
            ),
        )
    )
    k3s = Installed("v1.36.4+k3s1", "server", "c" * 64, "active", "enabled", {"images": "v1"}, True, True, "v1")
    k3s = dataclasses.replace(k3s, archives=("x.tar.zst",), data=True, files=(FileState("/x", "d" * 64, "0600"),))
    machine = Machine("aarch64", {"os": "Ubuntu 24.04"}, 126000, 0, True, {"enP7s7": (address(number),)}, (6443,))
    gpu = Gpu("580.159.03", True, True, True)
    host["machine"] = to_plain(dataclasses.replace(machine, free_mib={"/usr/local/bin": 9}, gpu=gpu, k3s=k3s))
    host["unread"] = {"wires": "no answer"}
    host["links"][0]["error"] = "no carrier"


def leaves(value: t.Any, path: Path = ()) -> t.Iterator[Path]:
    """Yield the paths of all texts, the first of each list only; a path that ends in `None` means a dictionary's key."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
            if path and path[-1] in KEYED:
                yield (*path, key, None)
    elif isinstance(value, list) and value:
        yield from leaves(value[0], (*path, 0))


KEYED = frozenset(
    [
        "units",
        "match",
        "versions",
        "memory",
        "platform",
        "addresses",
        "free_mib",
        "k3s",
        "ours",
        "values",
        "certificates",
    ]
)


def planted(value: t.Any, path: Path, what: t.Any) -> t.Any:
    """Return a copy with `what` at the path."""
    made = copy.deepcopy(value)
    if path[-1] is None:
        *above, key = path[:-1]
        holder = _at(made, above)
        holder[what] = holder.pop(key)
    else:
        _at(made, path[:-1])[path[-1]] = what
    return made


def _at(value: t.Any, path: t.Iterable[t.Any]) -> t.Any:
    for step in path:
        value = value[step]
    return value


def texts_of(cls: t.Any) -> set[tuple[str, str]]:
    """Return every field of a value class, and of those within it, that may hold text."""
    found: set[tuple[str, str]] = set()
    hints = t.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        for kind in _kinds(hints[field.name]):
            if kind is str:
                found.add((cls.__name__, field.name))
            elif dataclasses.is_dataclass(kind):
                found |= texts_of(kind)
    return found


def _kinds(hint: t.Any) -> t.Iterator[t.Any]:
    if t.get_origin(hint) in (tuple, dict, t.Union, types.UnionType):
        for each in t.get_args(hint):
            yield from _kinds(each)
    else:
        yield hint


def filled(value: t.Any, cls: t.Any) -> set[tuple[str, str]]:
    """Return the fields of a value class that hold text in this value."""
    found: set[tuple[str, str]] = set()
    hints = t.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        held = getattr(value, field.name)
        for kind in _kinds(hints[field.name]):
            items = list(held.values()) if isinstance(held, dict) else held if isinstance(held, tuple) else [held]
            if (
                kind is str
                and (isinstance(held, dict) or any(isinstance(each, (str, tuple)) for each in items))
                and held
            ):
                found.add((cls.__name__, field.name))
            elif dataclasses.is_dataclass(kind):
                for each in items:
                    if isinstance(each, t.cast(type, kind)):
                        found |= filled(each, kind)
    return found


_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def look(text: str, where: str) -> None:
    """Check a text that a person sees, or a file."""
    found = _CONTROL.search(text)
    assert not found, f"{where}: {found[0]!r} in {text[max(0, found.start() - 60) : found.end() + 20]!r}"
    assert len(text) < 300_000, f"{where}: {len(text)} characters"
