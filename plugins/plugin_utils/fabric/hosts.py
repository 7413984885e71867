# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of the plan: their numbers, their overrides, and which function on a node is which slot."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Finding, Function, Node
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import ip
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.settings import (
    VARIABLE,
    Hardware,
    Slot,
    near,
    show,
    type_name,
)

INDEX = "dgxspark_fabric_index"
FUNCTIONS = "dgxspark_fabric_functions"
MOST = 65535  # a MAC has two octets for the index

_NETDEV = re.compile(r"^[^\s/:]{1,15}$")
_PCI = re.compile(r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")


@dataclass(frozen=True, slots=True)
class HostInput:
    """What is known of a host before planning. `index` and `functions` are the raw host variables.

    management: its `ansible_host` or None. node: its facts, or None if they were not gathered. by: whatever else
    identifies the machine behind that address, such as a port or a jump host.
    """

    name: str
    index: t.Any = None
    management: str | None = None
    node: Node | None = None
    functions: t.Any = None
    by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Expected:
    """How to find a slot's function on a host, and its name until then.

    `pci` is None if unknown; `by_netdev` is False if the name alone proves nothing.
    """

    slot: Slot
    netdev: str
    pci: str | None
    by_netdev: bool = True


def _wrong(kind: str, subject: str, message: str, remedy: str) -> Finding:
    return Finding(f"hosts.{kind}", "error", subject, message, remedy)


def indexes(hosts: t.Sequence[HostInput]) -> tuple[dict[str, int], list[Finding]]:
    """Return each host's number: pinned, else its position from 1. Two hosts with the same number are a finding."""
    found: dict[str, int] = {}
    findings: list[Finding] = []
    owners: dict[int, str] = {}
    for position, host in enumerate(hosts, 1):
        pinned = host.index
        if host.name in found:
            message = "it is in the list of hosts twice."
            findings.append(_wrong("duplicate", host.name, message, "Name each host once."))
            continue
        if pinned is not None and (not isinstance(pinned, int) or isinstance(pinned, bool)):
            message = f"a whole number is needed, not {type_name(pinned)} {show(pinned)}."
            findings.append(
                _wrong("type", f"{host.name}: {INDEX}", message, "Write it without quotes; the lowest is 1.")
            )
            pinned = None
        elif pinned is not None and not 1 <= pinned <= MOST:
            message = f"{pinned} is out of range: it must be between 1 and {MOST}."
            findings.append(_wrong("range", f"{host.name}: {INDEX}", message, "Hosts are counted from 1."))
            pinned = None
        index = position if pinned is None else int(pinned)
        how = "its position in the group" if pinned is None else f"pinned by {INDEX}"
        found[host.name] = index
        if index in owners:
            message = f"{host.name} ({how}) and {owners[index]} have the same index {index}."
            remedy = f"Pin one of them to a free number with {INDEX}."
            findings.append(_wrong("index-clash", f"{host.name}: {INDEX}", message, remedy))
        owners.setdefault(index, f"{host.name} ({how})")
    return found, findings


def one_machine(hosts: t.Sequence[HostInput]) -> list[Finding]:
    """Find machines that are in the inventory under two names, and would get two identities.

    Compares addresses, and the MACs of the functions in the facts. A loopback address is the end of a tunnel and does not
    identify the machine.
    """
    findings: list[Finding] = []
    by_address: dict[tuple[str, ...], str] = {}
    by_mac: dict[str, str] = {}
    told: set[tuple[str, str]] = set()
    remedy = "Remove one of the two from the group, or correct its ansible_host."
    for host in hosts:
        address = _spelt(host.management or host.name)
        if not _loopback(address):
            other = by_address.setdefault((address, *host.by), host.name)
            if other != host.name:
                told.add((other, host.name))
                message = f"both are reached at {address}: that is one machine, and it would get two identities."
                findings.append(_wrong("one-machine", f"{other} and {host.name}", message, remedy))
        for function in host.node.functions if host.node else ():
            mac = function.netdev.mac.lower() if function.netdev and function.netdev.mac else ""
            other = by_mac.setdefault(mac, host.name)
            if mac.strip("0:") and other != host.name and (other, host.name) not in told:
                told.add((other, host.name))
                message = f"both have the MAC {mac} on {_shown(function)}: that is one machine under two names."
                findings.append(_wrong("one-machine", f"{other} and {host.name}", message, remedy))
    return findings


def _spelt(address: str) -> str:
    """Return an address or a name in its canonical spelling."""
    plain = address.strip("[]").rstrip(".").lower()
    found = ip.address(plain)
    if found is None:
        return plain
    return str(found.ipv4() if found.is_ipv4_mapped() else found)


def _loopback(address: str) -> bool:
    found = ip.address(address)
    return address == "localhost" if found is None else bool(found.is_loopback())


def expected(host: HostInput, hardware: Hardware) -> tuple[dict[str, Expected], list[Finding]]:
    """Return how to find each slot's function: as the hardware class says, or as the host's variable names it."""
    findings: list[Finding] = []
    named = host.functions if host.functions is not None else {}
    slots = {slot.slot: slot for slot in hardware.slots}
    found = {name: Expected(slot, slot.netdev, slot.pci) for name, slot in slots.items()}
    subject = f"{host.name}: {FUNCTIONS}"
    if not isinstance(named, t.Mapping):
        message = f"a dictionary is needed, not {type_name(named)} {show(named)}."
        return found, [_wrong("type", subject, message, "Such as {p0f0: {netdev: enp1s0f0np0}}.")]
    for name, entry in named.items():
        if name not in slots:
            message = f"hardware class {hardware.id} has no function {show(name)}."
            findings.append(_wrong("unknown", f"{subject}.{name}", message, near(name, slots)))
            continue
        fault = _fault(entry)
        if fault:
            remedy = "Give netdev, pci or both, such as {netdev: enp1s0f0np0}."
            findings.append(_wrong("type", f"{subject}.{name}{fault[0]}", fault[1], remedy))
            continue
        # The class's name and address go together: if the owner replaces one, the other no longer applies.
        netdev, pci = entry.get("netdev", slots[name].netdev), entry.get("pci")
        found[name] = Expected(slots[name], str(netdev), str(pci) if pci is not None else None, "netdev" in entry)
    for key in ("netdev", "pci"):
        seen: dict[str, str] = {}
        for name, entry in named.items() if not findings else ():
            other = seen.setdefault(entry.get(key, name), name)
            if other != name:
                message = f"{other} and {name} both have {key} {entry[key]}."
                findings.append(
                    _wrong(
                        "duplicate", f"{subject}.{name}.{key}", message, "Each name stands for a different function."
                    )
                )
    return found, findings


def _fault(entry: t.Any) -> tuple[str, str] | None:
    if not isinstance(entry, t.Mapping) or not entry:
        return "", f"a dictionary of netdev and pci is needed, not {show(entry)}."
    for key, value in entry.items():
        if key not in ("netdev", "pci"):
            return f".{key}", "there is no such key."
        pattern = _NETDEV if key == "netdev" else _PCI
        if not isinstance(value, str) or not pattern.match(value):
            what = "the name of an interface" if key == "netdev" else "a PCI address such as 0000:01:00.0"
            return f".{key}", f"{show(value)} is not {what}."
    return None


def resolve(
    host: HostInput, wanted: t.Sequence[Expected], hardware: Hardware, vf_count: int
) -> tuple[dict[str, Function], list[Finding]]:
    """Return the function of each wanted slot on a node with facts, and what the node lacks."""
    if host.node is None:
        return {}, []
    found: dict[str, Function] = {}
    findings: list[Finding] = []
    taken: dict[str, str] = {}
    missing: list[Expected] = []
    for want in wanted:
        name = want.slot.slot
        function, ambiguous = _find(host, want)
        if ambiguous:
            findings.append(ambiguous)
        elif function is None:
            missing.append(want)
        elif function.pci in taken:
            message = f"{taken[function.pci]} and {name} would both be {function.pci}."
            findings.append(_wrong("ambiguous", f"{host.name}: {name}", message, f"Name both in {FUNCTIONS}."))
        else:
            taken[function.pci] = name
            found[name] = function
            findings += _capacity(host.name, name, function, vf_count)
    return found, findings + ([_missing(host, missing, hardware)] if missing else [])


def _find(host: HostInput, want: Expected) -> tuple[Function | None, Finding | None]:
    functions = host.node.functions if host.node else ()
    by_pci = next((f for f in functions if f.pci == want.pci), None)
    named = (f for f in functions if want.by_netdev and f.netdev is not None and f.netdev.name == want.netdev)
    by_name = next(named, None)
    if by_pci and by_name and by_pci is not by_name:
        message = f"{want.pci} is {_shown(by_pci)}, but {want.netdev} is {_shown(by_name)}: only one can be meant."
        remedy = f"Name it in the host's {FUNCTIONS}, by pci or by netdev alone."
        return None, _wrong("ambiguous", f"{host.name}: {want.slot.slot}", message, remedy)
    return by_pci or by_name, None


def _shown(function: Function) -> str:
    return f"{function.netdev.name if function.netdev else 'no interface'} ({function.pci})"


def _missing(host: HostInput, missing: t.Sequence[Expected], hardware: Hardware) -> Finding:
    seen = ", ".join(_shown(f) for f in (host.node.functions if host.node else ())) or "none"
    names = ", ".join(f"{want.slot.slot} ({want.netdev}{f', {want.pci}' if want.pci else ''})" for want in missing)
    what = "the function is" if len(missing) == 1 else "the functions are"
    return _wrong(
        "missing-function",
        f"{host.name}: {names}",
        f"{what} missing. Functions seen: {seen}.",
        f"A port's functions vanish without a cable: plug it in. Or leave the port out of {VARIABLE}.ports, name the "
        f"function in the host's {FUNCTIONS}, or correct {VARIABLE}.hardware ({hardware.id}).",
    )


def _capacity(host: str, slot: str, function: Function, vf_count: int) -> t.Iterator[Finding]:
    subject = f"{host}: {slot} {_shown(function)}"
    firmware = (
        f"enable SR-IOV in the firmware: `mstconfig -d {function.pci} set SRIOV_EN=1 NUM_OF_VFS={vf_count}` "
        "(or mlxconfig), then power the node off and on: a reboot is not enough."
    )
    if not function.totalvfs:
        has = "is 0" if function.totalvfs == 0 else "is absent"
        message = f"sriov_totalvfs {has}: it offers no VFs, but {VARIABLE}.vf_count is {vf_count}."
        yield _wrong("no-vfs", subject, message, firmware[0].upper() + firmware[1:])
    elif function.totalvfs < vf_count:
        message = f"it offers {function.totalvfs} VFs (sriov_totalvfs), but {VARIABLE}.vf_count is {vf_count}."
        yield _wrong("too-many-vfs", subject, message, f"Set {VARIABLE}.vf_count to {function.totalvfs}, or {firmware}")
