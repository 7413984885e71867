# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the nodes' facts to the fabric's settings, checked with the fabric's own plan; or to the reasons why there are none."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, Finding, Function
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import unreached
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.discover import cables
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.discover.networks import Networks, networks
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.discover.seen import Seen, functions_by_slot
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.hosts import HostInput, one_machine
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.inventory import REACH
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.plan import Plan, fabric_plan
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.settings import DEFAULTS, Hardware
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.knowledge import Entry


@dataclass(slots=True)
class Composed:
    """The result. slots: each host's functions by slot; named: names for functions that the hardware class names differently.

    comments: the evidence for each setting. settings and plan are None if `findings` has an error.
    """

    hardware: Hardware
    layout: cables.Layout
    slots: dict[str, dict[str, Function]]
    named: dict[str, dict[str, dict[str, str]]]
    networks: Networks | None = None
    settings: dict[str, t.Any] | None = None
    plan: Plan | None = None
    findings: list[Finding] = field(default_factory=list)
    comments: dict[str, list[str]] = field(default_factory=dict)

    def used(self, host: str) -> dict[str, Function]:
        """Return a host's functions used by the fabric, by slot."""
        ports = self.layout.used(host)
        by_port = {slot.slot: slot.port for slot in self.hardware.slots}
        return {name: function for name, function in self.slots[host].items() if by_port[name] in ports}


def hardware_of(seen: t.Sequence[Seen], classes: t.Mapping[str, Entry]) -> tuple[Hardware, list[Finding]]:
    """Return the hardware class of the nodes' functions, or the default if no node has any. A fabric has one class."""
    found: dict[str, list[str]] = {}
    for host in seen:
        ids = {function.device_id for function in host.node.functions} if host.node else set()
        for name, entry in classes.items():
            if ids & set(entry["pf_device_ids"]):
                found.setdefault(name, []).append(host.name)
    chosen = max(found, key=lambda name: len(found[name]), default=str(DEFAULTS["hardware"]))
    wrong = []
    if len(found) > 1:
        told = "; ".join(f"{name}: {', '.join(hosts)}" for name, hosts in found.items())
        wrong.append(
            Finding(
                "nodes.mixed",
                "error",
                "hardware",
                f"the hosts are of several hardware classes ({told}).",
                "Discover those of one class at a time.",
            )
        )
    return Hardware.of(classes[chosen]), wrong


def compose(seen: t.Sequence[Seen], classes: t.Mapping[str, Entry]) -> Composed:
    """Compose the settings. classes: the entries of `knowledge/hardware`. Obstacles are returned as findings."""
    hardware, findings = hardware_of(seen, classes)
    readable = [host for host in seen if host.node is not None]
    by_host = {host.name: functions_by_slot(host.node, hardware) for host in readable if host.node}
    made = Composed(
        hardware=hardware,
        layout=cables.Layout(),
        slots={name: slots for name, (slots, _named) in by_host.items()},
        named={name: named for name, (_slots, named) in by_host.items() if named},
        findings=[
            *findings,
            *_unread(seen),
            *(finding for host in readable for finding in _of_host(host, alone=len(seen) == 1)),
        ],
    )
    inputs = [_input(host, made.named.get(host.name)) for host in seen]
    twice = one_machine(inputs)
    made.findings += twice
    if twice or not readable:
        return made
    names = [host.name for host in readable]
    made.layout = cables.layout(names, cables.wires(names, _calls(readable, made), _bridges(readable, made)))
    # If an expected host is unread, its absence may explain what the others lack.
    missing = len(readable) < len(seen)
    made.findings += [finding for finding in made.layout.findings if finding.id != "cables.none" or not missing]
    if missing or any(finding.severity == "error" for finding in made.findings):
        return made
    made.findings += _silent_functions(readable, made)
    made.networks = networks(seen, {host.name: made.used(host.name).values() for host in seen})
    made.findings += made.networks.findings
    if made.networks.findings:
        return made
    settings = _settings(made)
    try:
        made.plan = fabric_plan(inputs, settings, classes[hardware.id])
    except CollectionError as exc:
        made.findings += exc.findings or [Finding("plan.refused", "error", "", str(exc))]
        return made
    made.settings = settings
    return made


def _input(host: Seen, named: t.Mapping[str, t.Any] | None) -> HostInput:
    reach = host.reach
    address = reach.get("ansible_host")
    return HostInput(
        name=host.name,
        # That several hosts are local does not make them one machine.
        management=None if reach.get("ansible_connection") == "local" and not address else str(address or host.typed),
        node=host.node,
        functions=dict(named) if named else None,
        by=(str(reach.get("ansible_port") or 22), *(str(reach.get(key) or "") for key in REACH)),
    )


def _unread(seen: t.Sequence[Seen]) -> t.Iterator[Finding]:
    """Return a finding for each reason why hosts could not be read."""
    by: dict[str, list[str]] = {}
    for host in seen:
        if host.node is None:
            by.setdefault((host.error or "no answer").rstrip("."), []).append(host.shown)
    for why, hosts in by.items():
        known = unreached.why(why)
        told = "it could not be read" if len(hosts) == 1 else "they could not be read"
        yield Finding(
            "nodes.unread",
            "error",
            ", ".join(hosts),
            f"{told}: {why}.",
            "Bring it up, check that ssh and sudo work there (-u USER, -K), or leave it out of -i."
            if known == unreached.UNKNOWN
            else f"{known.remedy} Or leave it out of -i.",
        )


def _of_host(host: Seen, alone: bool) -> t.Iterator[Finding]:
    if host.node is None:
        return
    if not host.node.functions:
        yield Finding(
            "nodes.no-adapter",
            "warning" if alone else "error",  # a single Spark needs no fabric
            host.shown,
            "no ConnectX-7 is on its PCI bus.",
            "Without a cable, a port's functions disappear from the bus: plug one in. If it is not a DGX Spark, leave it out of -i.",
        )
    elif not alone and not any(function.netdev and function.netdev.carrier for function in host.node.functions):
        names = [function.netdev.name if function.netdev else function.pci for function in host.node.functions]
        off = [f.netdev.name for f in host.node.functions if f.netdev and f.netdev.carrier is None]
        yield Finding(
            "nodes.links-down",
            "error",
            host.shown,
            f"no port has a link ({', '.join(names)}).",
            f"Switched off: {', '.join(off)}. Switch them on: `ip link set {off[0]} up`, and so on."
            if off
            else "Plug a cable in, at both ends, and check that the other end is switched on.",
        )
    for what, why in host.unread:
        yield Finding(
            "nodes.part-unread",
            "warning",
            host.shown,
            f"its {what} could not be read: {why.rstrip('.')}.",
            "Fix that, and run again.",
        )


def _calls(seen: t.Sequence[Seen], made: Composed) -> t.Iterator[tuple[cables.End, cables.End]]:
    port_of = {slot.slot: slot.port for slot in made.hardware.slots}
    ends: dict[str, cables.End] = {}
    own: dict[tuple[str, str], cables.End] = {}
    for host in seen:
        for slot, function in made.slots[host.name].items():
            if function.netdev:
                end = (host.name, port_of[slot])
                own[host.name, function.netdev.name] = end
                if function.netdev.mac:
                    ends[function.netdev.mac.lower()] = end
    for host in seen:
        for heard in host.heard:
            here = own.get((host.name, heard.netdev))
            for mac in heard.macs if here else ():
                if here and mac.lower() in ends:
                    yield here, ends[mac.lower()]
        for neighbour in host.survey.neighbours if host.survey else ():
            here = own.get((host.name, neighbour.netdev))
            there = ends.get(neighbour.port or "") or ends.get(neighbour.chassis or "")
            if here and there and not neighbour.bridge:
                yield here, there


def _bridges(seen: t.Sequence[Seen], made: Composed) -> dict[cables.End, str]:
    port_of = {slot.slot: slot.port for slot in made.hardware.slots}
    found = {}
    for host in seen:
        by_netdev = {f.netdev.name: port_of[slot] for slot, f in made.slots[host.name].items() if f.netdev}
        for neighbour in host.survey.neighbours if host.survey else ():
            if neighbour.bridge and neighbour.netdev in by_netdev:
                name = neighbour.system or neighbour.chassis or ""
                found[host.name, by_netdev[neighbour.netdev]] = name
    return found


def _silent_functions(seen: t.Sequence[Seen], made: Composed) -> t.Iterator[Finding]:
    """Find functions without a link on ports in use that have one."""
    for host in seen:
        for slot, function in made.used(host.name).items():
            if function.netdev and not function.netdev.carrier:
                yield Finding(
                    "links.function-down",
                    "warning",
                    f"{host.shown} {slot}",
                    f"{function.netdev.name} has no link, although its port has one.",
                    f"dgxspark.cluster.site switches it on. If it stays down: `ip link set {function.netdev.name} up`, and see dmesg.",
                )


def _settings(made: Composed) -> dict[str, t.Any]:
    layout, nets, comments = made.layout, t.cast(Networks, made.networks), made.comments
    functions = [function for host in made.slots for function in made.used(host).values()]
    settings: dict[str, t.Any] = {"hardware": made.hardware.id, "topology": layout.topology}
    comments["topology"] = list(layout.assumed)
    if layout.topology == "switch":
        settings["ports"] = list(layout.ports)
        comments["topology"].append("; ".join(str(wire) for wire in layout.wires if wire.is_switch))
    elif layout.cables:
        settings["cables"] = [[f"{host}:{port}" for host, port in cable] for cable in layout.cables]
    if functions:
        settings["vf_count"], comments["vf_count"] = _vf_count(functions, made.hardware.vf_stride)
    settings["address_pool"] = nets.pool
    comments["address_pool"] = [f"Chosen {nets.why['pool']}." if "pool" in nets.why else _FREE]
    settings["management_networks"] = list(nets.management)
    reserved = {"pods": nets.pods, "services": nets.services, **nets.others}
    settings["reserved_networks"] = reserved
    comments["reserved_networks"] = [
        "Networks that are in use on a node, and those of K3s's pods and services: the fabric keeps clear of them.",
        *(f"{name}: chosen {nets.why[name]}." for name in ("pods", "services") if name in nets.why),
    ]
    return settings


_FREE = "No route, address, Docker or K3s network of any node overlaps the fabric's addresses."


def _vf_count(functions: t.Sequence[Function], stride: int) -> tuple[int, list[str]]:
    usual = int(DEFAULTS["vf_count"])
    least = min(function.totalvfs or 0 for function in functions)
    there = {function.numvfs or 0 for function in functions}
    chosen = min(usual, max(1, least))
    comments = [f"The firmware allows {least} on each function (sriov_totalvfs)."]
    if len(there) == 1 and 0 < min(there) <= stride and min(there) != chosen:
        return min(there), [*comments, "That many exist now."]
    return chosen, comments
