# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Validates `dgxspark_fabric` and its hardware class: plain data in, frozen settings and findings out."""

from __future__ import annotations

import functools
import json
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Finding
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge, near_names
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.addresses import (
    Network,
    ipv6_network,
    parse_network,
    unusable,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.topologies import TOPOLOGIES

VARIABLE = "dgxspark_fabric"
GUIDE = "See docs/docsite/rst/guide_fabric.rst."

Cable = tuple[tuple[str, int], tuple[str, int]]

_SCHEMA = knowledge.COLLECTION / "docs" / "schema" / "dgxspark-fabric.json"
_BYTE = 256
ANY_MTU = 65535


@dataclass(frozen=True, slots=True)
class Slot:
    """A function that each machine of a hardware class should have."""

    slot: str
    port: int
    function: int
    netdev: str
    pci: str


@dataclass(frozen=True, slots=True)
class Hardware:
    """What the plan needs from an entry of `knowledge/hardware/`."""

    id: str
    slots: tuple[Slot, ...]
    default_ports: dict[str, tuple[int, ...]]
    vf_stride: int
    mtu_max: int

    @classmethod
    def of(cls, entry: t.Mapping[str, t.Any]) -> Hardware:
        """Build it from a checked entry of the knowledge base."""
        return cls(
            id=str(entry["id"]),
            slots=tuple(Slot(s["slot"], s["port"], s["function"], s["netdev"], s["pci"]) for s in entry["slots"]),
            default_ports={name: tuple(ports) for name, ports in entry["default_ports"].items()},
            vf_stride=entry["vf_stride"],
            mtu_max=entry.get("mtu_max", ANY_MTU),
        )

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports by number."""
        return tuple(sorted({slot.port for slot in self.slots}))

    @property
    def functions(self) -> int:
        """How many function numbers a port occupies in the numbering of subnets."""
        return max(slot.function for slot in self.slots) + 1

    def of_port(self, port: int) -> list[Slot]:
        """Return the slots of a port in order."""
        return sorted((slot for slot in self.slots if slot.port == port), key=lambda slot: slot.function)


@dataclass(frozen=True, slots=True)
class Settings:
    """`dgxspark_fabric` with its defaults filled in. MTU in bytes; `purposes` by VF index."""

    topology: str
    group: str
    ports: tuple[int, ...]
    cables: tuple[Cable, ...] | None
    purposes: tuple[str, ...]
    vf_stride: int
    pool: Network
    subnet_prefix: int
    subnets: dict[str, Network]
    mtu: int
    mac_prefix: str
    management: tuple[Network, ...]
    reserved: dict[str, Network]


@functools.cache
def _schema() -> dict[str, t.Any]:
    return t.cast(dict[str, t.Any], json.loads(_SCHEMA.read_text(encoding="utf-8")))


# The schema states the defaults, where editors see them; one without is required, or follows from the others.
DEFAULTS = {name: entry.get("default") for name, entry in _schema()["properties"].items()}
RESERVED = {"pods": "10.42.0.0/16", "services": "10.43.0.0/16"}
PURPOSES = ("serving", "bench")
SPARE = "spare"


def near(word: t.Any, known: t.Iterable[str]) -> str:
    """Return "Did you mean …?" if a known word is close, else the known words."""
    words = list(known)
    close = near_names.alike(word, words, most=1)
    more = f" and {len(words) - 16} more" if len(words) > 16 else ""
    return f"Did you mean {close[0]}?" if close else f"Known: {', '.join(words[:16])}{more}."


def show(value: t.Any, limit: int = 60) -> str:
    """Return a value for a message, truncated if it is long."""
    text = repr(str(value) if isinstance(value, str) else value)
    return text if len(text) <= limit else f"{text[:limit]}…"


def hardware_name(raw: t.Any) -> str:
    """Return the hardware class that raw settings name, or the default if they name none as text."""
    name = raw.get("hardware", DEFAULTS["hardware"]) if isinstance(raw, t.Mapping) else DEFAULTS["hardware"]
    return str(name) if isinstance(name, str) else str(DEFAULTS["hardware"])


def group_name(raw: t.Any) -> str:
    """Return the inventory's group of the fabric's hosts that raw settings name, or the default if they name none as text."""
    name = raw.get("group", DEFAULTS["group"]) if isinstance(raw, t.Mapping) else DEFAULTS["group"]
    return str(name) if isinstance(name, str) else str(DEFAULTS["group"])


class _Reader:
    """The settings that the schema accepts, and what is wrong with the others, which become their defaults."""

    def __init__(self, raw: t.Mapping[str, t.Any]) -> None:
        self.findings: list[Finding] = []
        bad = set()
        for error in knowledge.errors(_schema(), dict(raw), typed=True):
            bad |= set(list(error.absolute_path)[:1])
            self._refuse(error)
        self.given = {key: value for key, value in raw.items() if key in DEFAULTS and key not in bad}

    def _refuse(self, error: t.Any) -> None:
        path, value = list(error.absolute_path), error.instance
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
        if not path and error.validator == "additionalProperties":
            for name in value:
                if name not in DEFAULTS:
                    self.wrong("unknown-key", str(name), "there is no such key.", near(name, DEFAULTS))
        elif error.validator == "required":
            for name in error.validator_value:
                if name not in value:
                    remedy = f"Set it to one of {', '.join(topologies())}." if name == "topology" else GUIDE
                    self.wrong("missing", f"{key}.{name}".lstrip("."), "it is not set.", remedy)
        elif value is None and len(path) == 1:
            self.wrong("missing", key, "it has no value.", "Give it one, or leave the key out for its default.")
        else:
            remedy = near(value, error.validator_value) if error.validator == "enum" else GUIDE
            self.wrong("type", key, f"{type_name(value)} {show(value)} is not {error.schema['description']}.", remedy)

    def wrong(self, kind: str, key: str, message: str, remedy: str = GUIDE) -> None:
        self.findings.append(Finding(f"settings.{kind}", "error", f"{VARIABLE}.{key}", message, remedy))

    def get(self, key: str) -> t.Any:
        return self.given.get(key, DEFAULTS[key])

    def number(self, key: str, low: int, high: int) -> int:
        value = self.get(key)
        if not low <= value <= high:
            self.wrong("range", key, f"{value} is out of range: it must be between {low} and {high}.")
        return int(value)

    def network(self, key: str, value: t.Any) -> Network | None:
        try:
            return parse_network(value)
        except ValueError as exc:
            self.wrong("network", key, f"{show(value)} {exc}.")
            return None


def topologies() -> list[str]:
    """Return the topologies."""
    return list(TOPOLOGIES)


def type_name(value: t.Any) -> str:
    """Return a value's type in YAML users' terms."""
    for kind, name in ((bool, "the truth value"), (str, "the text"), (int, "the number"), (float, "the number")):
        if isinstance(value, kind):
            return name
    if value is None:
        return "the empty value"
    if isinstance(value, t.Mapping):
        return "the dictionary"
    return "the list" if isinstance(value, (list, tuple)) else type(value).__name__


def read_settings(raw: t.Any, hardware: Hardware) -> tuple[Settings | None, list[Finding]]:
    """Check raw settings. Reports all faults at once; the settings are None if even the topology is unknown."""
    if not isinstance(raw, t.Mapping):
        found = f"a dictionary is needed, not {type_name(raw)} {show(raw)}."
        return None, [Finding("settings.type", "error", VARIABLE, found, GUIDE)]
    reader = _Reader(raw)
    topology = str(reader.get("topology") or "") or None
    stride = int(reader.get("vf_stride") or hardware.vf_stride)
    pool = _pool(reader)
    settings = Settings(
        topology=topology or "switch",
        group=str(reader.get("group")),
        ports=_ports(reader, hardware, topology),
        cables=_cables(reader, topology),
        purposes=_purposes(reader, stride),
        vf_stride=stride,
        pool=pool,
        subnet_prefix=reader.number("subnet_prefix", max(pool.prefix, 8), 30),
        subnets=_networks(reader, "subnets"),
        mtu=reader.number("mtu", 1280, hardware.mtu_max),
        mac_prefix=_mac_prefix(reader),
        management=_management(reader),
        reserved=_reserved(reader),
    )
    if (
        settings.cables
        and raw.get("ports")
        and set(settings.ports) != {end[1] for cable in settings.cables for end in cable}
    ):
        reader.wrong(
            "ports",
            "ports",
            "the cables use other ports than these.",
            f"Leave it out: {VARIABLE}.cables already names the ports.",
        )
    return (settings if topology else None), reader.findings


def _pool(reader: _Reader) -> Network:
    pool = reader.network("address_pool", reader.get("address_pool"))
    why = unusable(pool) if pool else None
    if pool and why:
        reader.wrong("network", "address_pool", f"{pool} cannot be used: {why}.", "Choose a private network.")
    if pool and pool.prefix > 30:
        reader.wrong("network", "address_pool", f"{pool} has no room for two hosts.", "Choose a larger network.")
        pool = None
    return pool or parse_network(DEFAULTS["address_pool"])


def _ports(reader: _Reader, hardware: Hardware, topology: str | None) -> tuple[int, ...]:
    default = hardware.default_ports.get(topology or "", ())
    value = reader.get("ports")
    if value is None:
        if (
            not default
            and topology is not None
            and TOPOLOGIES[topology].by != "nothing"
            and reader.get("cables") is None
        ):
            message = f"it is not set, and hardware class {hardware.id} names no default_ports of topology {topology}."
            has = ", ".join(map(str, hardware.ports))
            reader.wrong("missing", "ports", message, f"Name the ports in use ({has}).")
        return default
    for port in value:
        if port not in hardware.ports:
            has = ", ".join(map(str, hardware.ports))
            reader.wrong("range", "ports", f"hardware class {hardware.id} has no port {port}; it has {has}.")
    if len(set(value)) != len(value):
        reader.wrong("duplicate", "ports", f"{show(list(value))} names a port twice.", "Name each once.")
    return tuple(sorted({int(port) for port in value} & set(hardware.ports))) or default


def _cables(reader: _Reader, topology: str | None) -> tuple[Cable, ...] | None:
    value = reader.get("cables")
    if value is None:
        return None
    if topology is not None and not TOPOLOGIES[topology].cables:
        reader.wrong("cables", "cables", f"topology {topology} has no cables between nodes.", "Leave the key out.")
        return None
    ends = [[end.rpartition(":") for end in cable] for cable in value]
    return tuple(((one[0], int(one[2])), (other[0], int(other[2]))) for one, other in ends)


def _purposes(reader: _Reader, stride: int) -> tuple[str, ...]:
    most = min(stride, _BYTE)
    count = reader.get("vf_count")
    if count > most:
        message = f"{count} is out of range: it must be between 1 and vf_stride {most}."
        remedy = (
            f"Configure fewer, or raise {VARIABLE}.vf_stride (which renumbers the subnets) if the nodes have as many."
        )
        reader.wrong("range", "vf_count", message, remedy)
        count = 1
    default = [{"index": index, "purpose": purpose} for index, purpose in enumerate(PURPOSES[:count])]
    named: dict[int, str] = {}
    for number, entry in enumerate(default if reader.get("vfs") is None else reader.get("vfs")):
        key, index = f"vfs[{number}].index", entry["index"]
        if index >= count:
            reader.wrong("range", key, f"{index} is not one of the {count} VFs (vf_count), counted from 0.")
        elif index in named:
            reader.wrong("duplicate", key, f"VF {index} is already {named[index]}.", "Name each VF once.")
        else:
            named[index] = str(entry["purpose"])
    return tuple(named.get(index, SPARE) for index in range(count))


def _networks(reader: _Reader, key: str) -> dict[str, Network]:
    found = {}
    for name, value in reader.get(key).items():
        network = reader.network(f"{key}.{name}", value)
        if network and network.prefix > 30:
            reader.wrong(
                "network", f"{key}.{name}", f"{network} has no room for two hosts.", "Choose a larger network."
            )
        elif network and (why := unusable(network)):
            reader.wrong("network", f"{key}.{name}", f"{network} cannot be used: {why}.", "Choose a private network.")
        elif network:
            found[str(name)] = network
    return found


def _mac_prefix(reader: _Reader) -> str:
    value = str(reader.get("mac_prefix")).lower()
    if int(value[:2], 16) & 1:
        reader.wrong(
            "range", "mac_prefix", f"{value} is a prefix of multicast addresses.", "Choose 02, 06, 0a … as first octet."
        )
    elif not int(value[:2], 16) & 2:
        message = f"{value} is not locally administered: a manufacturer's devices may have these addresses."
        reader.wrong("range", "mac_prefix", message, "Choose 02, 06, 0a … as first octet.")
    else:
        return value
    return str(DEFAULTS["mac_prefix"])


def _management(reader: _Reader) -> tuple[Network, ...]:
    networks = [
        reader.network(f"management_networks[{number}]", value)
        for number, value in enumerate(reader.get("management_networks"))
        if not ipv6_network(value)
    ]
    return tuple(network for network in networks if network)


def _reserved(reader: _Reader) -> dict[str, Network]:
    found = {}
    for name, value in {**RESERVED, **reader.get("reserved_networks")}.items():
        # The two defaults are passed to K3s, which gives pods IPv4 addresses.
        skipped = value is None or (name not in RESERVED and ipv6_network(value))
        network = None if skipped else reader.network(f"reserved_networks.{name}", value)
        if network:
            found[str(name)] = network
    return found
