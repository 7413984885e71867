# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's value classes: what a node has (*current*), what it should have (*planned*), what is wrong.

Modules and filters exchange them as plain dictionaries (`to_plain`, `from_plain`); the core works on the frozen classes.
Units: MTU in bytes, link speed in Mb/s, memory in KiB. An unknown value is None, never a guess.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
import reprlib
import types
import typing as t
import unicodedata
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, IPv6Address

T = t.TypeVar("T")

_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = 120

MIB = 2**20  # bytes
GIB = 2**30
KIB_PER_GIB = 2**20

Severity = t.Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")  # the worst first

ROCE_V1 = "IB/RoCE v1"
ROCE_V2 = "RoCE v2"


def of_form(check: t.Callable[[str], t.Any], like: str) -> dict[str, t.Any]:
    """Return a field's metadata for `from_plain`: its text must be one that `check` does not refuse with a ValueError."""
    return {"form": check, "like": like}


ADDRESS = of_form(IPv4Interface, "192.0.2.1/24")  # an IPv4 address, with or without prefix
_GID = of_form(IPv6Address, "fe80::1")

# --- what a node has ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gid:
    """One used entry of a port's GID table (`/sys/class/infiniband/HCA/ports/N/gids/INDEX`)."""

    index: int
    gid: str = field(metadata=_GID)
    type: str | None
    netdev: str | None

    @property
    def ipv4(self) -> str | None:
        """The IPv4 address of a mapped GID (`::ffff:a.b.c.d`), else None."""
        mapped = IPv6Address(self.gid).ipv4_mapped
        return str(mapped) if mapped else None

    @property
    def link_local(self) -> bool:
        """Whether the GID derives from an `fe80::` address."""
        return IPv6Address(self.gid).is_link_local


@dataclass(frozen=True, slots=True)
class Port:
    """One port of an HCA. `state` is the logical state (`ACTIVE`, `DOWN`, …) as sysfs names it."""

    number: int
    state: str | None = None
    phys_state: str | None = None
    link_layer: str | None = None
    rate_gbps: float | None = None
    active_mtu: int | None = None
    gids: tuple[Gid, ...] = ()


@dataclass(frozen=True, slots=True)
class Hca:
    """An RDMA device."""

    name: str
    node_guid: str | None = None
    ports: tuple[Port, ...] = ()


@dataclass(frozen=True, slots=True)
class Arp:
    """The sysctls that keep twins on one wire from answering for each other (`net.ipv4.conf.IFACE.*`)."""

    arp_ignore: int | None = None
    arp_announce: int | None = None
    rp_filter: int | None = None


@dataclass(frozen=True, slots=True)
class Netdev:
    """A network interface, in whatever network namespace it is."""

    name: str
    mac: str | None = None
    mtu: int | None = None
    operstate: str | None = None
    carrier: bool | None = None
    speed_mbps: int | None = None
    ipv4: tuple[str, ...] = field(default=(), metadata=ADDRESS)  # "address/prefix"
    arp: Arp = Arp()
    routes: tuple[str, ...] | None = None  # the IPv4 networks to which it has a route; None: not read


@dataclass(frozen=True, slots=True)
class Place:
    """Where a VF's netdev is: `host`, in a `pod` (a namespace with processes), `stranded` (one without), or `unbound`."""

    state: t.Literal["host", "pod", "stranded", "unbound"]
    netns: str | None = None  # a path to enter it by
    pids: int = 0


@dataclass(frozen=True, slots=True)
class Vf:
    """A virtual function. `admin_mac`, `trust` and `spoof_check` are its PF's settings for it."""

    index: int
    pci: str
    driver: str | None = None
    netdev: Netdev | None = None
    hca: Hca | None = None
    admin_mac: str | None = None
    trust: bool | None = None
    spoof_check: bool | None = None
    place: Place = Place("unbound")
    users: tuple[str, ...] = ()  # processes with user-space queue pairs on its HCA, "comm (pid)"
    open_by: tuple[str, ...] = ()  # processes that have its HCA's device file open, with or without queue pairs


@dataclass(frozen=True, slots=True)
class Function:
    """A physical function (PF): one of the PCIe functions of a QSFP port."""

    pci: str
    device_id: str | None = None  # "vendor:device", such as "15b3:1021"
    driver: str | None = None
    driver_version: str | None = None
    firmware: str | None = None
    phys_port: str | None = None
    phys_switch: str | None = None
    netdev: Netdev | None = None
    hca: Hca | None = None
    totalvfs: int | None = None
    numvfs: int | None = None
    eswitch: str | None = None
    vfs: tuple[Vf, ...] = ()


@dataclass(frozen=True, slots=True)
class NetplanStanza:
    """What a netplan file says about one device: enough to find clashes, nothing secret."""

    kind: str
    id: str
    match: dict[str, t.Any] = field(default_factory=dict)
    set_name: str | None = None
    refers: tuple[str, ...] = ()  # ids of stanzas that it needs, such as a bond's interfaces or a VLAN's link
    renderer: str | None = None  # its own; None: the renderer of all


@dataclass(frozen=True, slots=True)
class NetplanFile:
    """A netplan file of the node. `error` is set if it could not be parsed; `ours` is False for an owner's file."""

    path: str
    sha256: str
    mode: str
    stanzas: tuple[NetplanStanza, ...] = ()
    error: str | None = None
    ours: bool | None = None  # None: not known


@dataclass(frozen=True, slots=True)
class Netplan:
    """netplan on the node: the renderer in use, the files, and an unconfirmed change if there is one."""

    renderer: str | None = None
    service: str | None = None  # state of the renderer's service: "active", "masked", "inactive", "failed" …
    version: str | None = None
    files: tuple[NetplanFile, ...] = ()
    pending: str | None = None


@dataclass(frozen=True, slots=True)
class FileState:
    """A file that the caller asked for: missing files have no digest."""

    path: str
    sha256: str | None = None
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """Everything that `roce_info` reads of a node in one round trip."""

    kernel: str | None = None
    mem_available_kib: int | None = None
    ranks: tuple[str, ...] = ()  # of served models whose supervisor runs here: "rank0 (pid)"
    functions: tuple[Function, ...] = ()
    netplan: Netplan = Netplan()
    other: tuple[Netdev, ...] = ()  # the node's other interfaces with an IPv4 address
    files: tuple[FileState, ...] = ()
    units: dict[str, str] = field(default_factory=dict)  # systemd unit -> "enabled", "disabled", "not-found" …
    failed: tuple[str, ...] = ()  # units of ours that have failed
    changing: str | None = None  # another run that is changing the node at this moment, in words
    record_fault: str | None = None  # what is wrong with the record of the state before: see fabric/record.py
    rdma_netns: str | None = None  # how network namespaces use RDMA devices: "shared" or "exclusive"

    def function(self, pci: str | None, netdev: str | None = None) -> Function | None:
        """Return the function at a PCI address, or by its interface's name if no address is given."""
        for function in self.functions:
            if function.pci == pci or (pci is None and function.netdev is not None and function.netdev.name == netdev):
                return function
        return None


# --- what a node should have ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlannedVf:
    """One VF of the plan. `netdev`, `pci` and `hca` are None until the node has been seen with its VFs."""

    index: int
    purpose: str
    mac: str
    address: str
    prefix: int
    subnet: str
    mtu: int
    netdev: str | None = None
    pci: str | None = None
    hca: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedFunction:
    """One function of the plan. `slot` (`p0f1` = port 0, function 1) names it in every table and message."""

    slot: str
    port: int
    function: int
    segment: str
    netdev: str
    pci: str | None
    mtu: int
    vfs: tuple[PlannedVf, ...]
    mac: str | None = None
    hca: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedHost:
    """One host of the plan. `detected` says whether its functions were seen or are only expected from its hardware."""

    name: str
    index: int
    detected: bool
    functions: tuple[PlannedFunction, ...]


# --- what is wrong, and what would change ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found: a stable `id`, where, what and why, and what to do about it.

    names: the settings concerned; source: where a rule comes from.
    """

    id: str
    severity: Severity
    subject: str
    message: str
    remedy: str = ""
    names: tuple[str, ...] = ()
    source: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{self.subject}: {self.message}" if self.subject else self.message
        return f"{text} {self.remedy}".strip()


def worst_first(findings: t.Iterable[Finding]) -> list[Finding]:
    """Return findings in the order of SEVERITIES; those of equal severity keep their order."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between the current and the planned state, for a report."""

    subject: str
    what: str
    before: t.Any
    after: t.Any


_WHOLE = 60  # lines of a text that a diff shows whole


def _brief(text: t.Any, other: t.Any) -> t.Any:
    """Return what a diff shows of one side of a change."""
    if text is None:
        return "none"
    if isinstance(other, str) or not isinstance(text, str) or text.count("\n") <= _WHOLE:
        return text
    return f"{text.count(chr(10))} lines, sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def change_result(changes: t.Sequence[Change]) -> dict[str, t.Any]:
    """Return a module's answer about its changes: changed, the changes in plain form, and Ansible's diff of them.

    The diff says of a long text that comes or goes how long it is: nobody reads a whole program there.
    """
    sides = {"before": [(c, c.before, c.after) for c in changes], "after": [(c, c.after, c.before) for c in changes]}
    diff = {
        key: "".join(f"{c.subject} {c.what}: {_brief(own, other)}\n" for c, own, other in rows)
        for key, rows in sides.items()
    }
    return {"changed": bool(changes), "changes": to_plain(changes), "diff": diff}


def text_diff(subject: str, before: str, after: str) -> dict[str, str]:
    """Return two texts in the form of Ansible's diff, with the subject (a path, an object's name) as header."""
    return {"before_header": subject, "after_header": subject, "before": before, "after": after}


# Control characters, surrogates, unassigned code points, and separators or marks that end a line or reverse its direction.
_HIDDEN = frozenset(["Cc", "Cs", "Cn", "Co", "Zl", "Zp", "Cf"])
_UNUSUAL = re.compile(r"[^\n\t -~]")


def shown(letter: str) -> str:
    """Return a character as it may be shown: what ends a line as a blank, what is hidden as `?`."""
    return " " if letter in "\t\n\r" else "?" if unicodedata.category(letter) in _HIDDEN else letter


class _Shown(dict[int, str]):
    """Characters as they are shown in lines, by their code point; for str.translate."""

    def __missing__(self, code: int) -> str:
        if len(self) > 1 << 16:
            self.clear()
        self[code] = chr(code) if chr(code) in "\n\t" else shown(chr(code))
        return self[code]


_IN_LINES = _Shown()


def lines(text: str) -> str:
    """Return a text for a terminal: as it is, with line ends and tabs, but no other control characters."""
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    return text.translate(_IN_LINES) if _UNUSUAL.search(text) else text


class CollectionError(Exception):
    """An expected failure, with its cause and remedy in plain words. Modules turn it into fail_json.

    Its text is shown as it is: what it quotes from elsewhere is made plain here.
    """

    def __init__(self, message: str, *, findings: t.Sequence[Finding] = ()) -> None:
        super().__init__(lines(str(message)))
        self.findings = tuple(findings)


# --- plain forms ----------------------------------------------------------------------------------------------------


def to_plain(value: t.Any) -> t.Any:
    """Turn values of this module into dictionaries and lists, which is all that Ansible can store."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    return value


def from_plain(cls: type[T], data: t.Any, where: str = "") -> T:
    """Build a value class from its plain form.

    Raises CollectionError naming the key for an unknown or missing key or a value of the wrong type.
    """
    where = where or cls.__name__
    if not isinstance(data, t.Mapping):
        raise CollectionError(f"{where}: a dictionary is needed, not {type(data).__name__} {_shown.repr(data)}.")
    hints = _hints(t.cast(t.Any, cls))
    fields = {f.name: f for f in dataclasses.fields(t.cast(t.Any, cls))}
    unknown = sorted(set(data) - set(fields))
    if unknown:
        raise CollectionError(f"{where}: unknown key {_shown.repr(unknown[0])}. Known keys: {', '.join(fields)}.")
    values = {name: _convert(hints[name], data[name], f"{where}.{name}") for name in fields if name in data}
    for name in values:
        if fields[name].metadata:
            _check(values[name], fields[name].metadata, f"{where}.{name}")
    try:
        return cls(**values)
    except TypeError as exc:
        missing = [
            n
            for n, f in fields.items()
            if n not in data and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        ]
        raise CollectionError(f"{where}: key {', '.join(map(repr, missing))} is missing.") from exc


def _check(value: t.Any, metadata: t.Mapping[str, t.Any], where: str) -> None:
    held = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else [value]
    for each in held:
        try:
            if each is not None and "form" in metadata:
                metadata["form"](each)
        except ValueError:
            raise CollectionError(
                f"{where}: {_shown.repr(each)} does not have the form of {metadata['like']}."
            ) from None


@functools.cache
def _hints(cls: t.Any) -> dict[str, t.Any]:
    return t.get_type_hints(cls)  # slow: it compiles every annotation


def _convert(hint: t.Any, value: t.Any, where: str) -> t.Any:
    origin = t.get_origin(hint)
    args = t.get_args(hint)
    if hint is t.Any:
        return value
    if origin in (t.Union, types.UnionType):
        if value is None and types.NoneType in args:
            return None
        return _convert(next(a for a in args if a is not types.NoneType), value, where)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise CollectionError(f"{where}: a list is needed, not {type(value).__name__} {_shown.repr(value)}.")
        return tuple(_convert(args[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, t.Mapping):
            raise CollectionError(f"{where}: a dictionary is needed, not {type(value).__name__} {_shown.repr(value)}.")
        return {str(k): _convert(args[1], v, f"{where}.{k}") for k, v in value.items()}
    if origin is t.Literal:
        if value not in args:
            raise CollectionError(f"{where}: {_shown.repr(value)} is not one of {', '.join(map(str, args))}.")
        return value
    if dataclasses.is_dataclass(hint):
        return from_plain(t.cast(t.Any, hint), value, where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise CollectionError(f"{where}: {_shown.repr(value)} is not of type {hint.__name__}.")
    # Ansible's own strings and numbers are subclasses, which YAML libraries refuse to write.
    return hint(value) if hint in (str, int, float) else value
