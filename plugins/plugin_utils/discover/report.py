# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The discovery as plain data for the page, and as lines for a terminal."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.survey import Stack
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    KIB_PER_GIB,
    Finding,
    Function,
    to_plain,
    worst_first,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import known_bad
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.discover.compose import Composed
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.discover.inventory import foreign_files
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.discover.seen import Seen
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.knowledge import Entry
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.signatures import count

Plain = dict[str, t.Any]

_VERSIONS = ("dgx_os", "kernel", "driver", "firmware")
_HEAD = ("HOST", "ADDRESS", "STATUS", "DGX OS", "KERNEL", "DRIVER", "NIC FIRMWARE", "FREE GiB")


def view(seen: t.Sequence[Seen], made: Composed, stacks: t.Mapping[str, Entry], bad: t.Sequence[Entry]) -> Plain:
    """Return the discovery's view. stacks, bad: the entries of `knowledge/stacks` and `knowledge/versions`."""
    about = [finding for host in seen for finding in _about_host(host, stacks)]
    about += [*_versions(seen, bad), *_foreign(seen, made)]
    findings = worst_first([*made.findings, *about])
    ok = made.settings is not None
    named = _segments(made)
    return {
        "verdict": "failed" if not ok else "incomplete" if any(f.severity == "warning" for f in findings) else "passed",
        "headline": _headline(seen, made),
        "topology": made.layout.topology if ok else None,
        "hardware": made.hardware.id,
        "hosts": [_host(host, made, stacks, named) for host in seen],
        "wires": [str(wire) for wire in made.layout.wires],
        "settings": made.settings,
        "rests_on": [text for texts in made.comments.values() for text in texts if text],
        "findings": [to_plain(finding) for finding in findings],
    }


def _segments(made: Composed) -> dict[tuple[str, int], str]:
    """Return a unique name of the segment at each port."""
    found: dict[tuple[str, int], str] = {}
    for switch in (True, False):
        for number, wire in enumerate((w for w in made.layout.wires if w.is_switch is switch), 1):
            name = f"cable{number}" if not switch else wire.switch or "switch"
            name += f" ({number})" if name in found.values() else ""
            found |= dict.fromkeys(wire.ends, name)
    return found


def _headline(seen: t.Sequence[Seen], made: Composed) -> str:
    if made.settings is None:
        errors = [finding for finding in made.findings if finding.severity == "error"]
        first = f"{errors[0].subject}: {errors[0].message}" if errors else "nothing was read"
        return f"NO INVENTORY, for {count(len(errors), 'reason')}: {first}"
    layout = made.layout
    how = {
        "single": "no fabric to make",
        "switch": f"on a switch by {'ports' if len(layout.ports) > 1 else 'port'} {', '.join(map(str, layout.ports))}",
    }.get(layout.topology or "", f"{layout.topology} of {count(len(layout.cables), 'cable')}")
    return f"{count(len(seen), 'Spark')}: {how}."


def _about_host(host: Seen, stacks: t.Mapping[str, Entry]) -> t.Iterator[Finding]:
    for stack in host.survey.stacks if host.survey else ():
        entry = stacks.get(stack.id, {"title": stack.id, "advice": "", "source": ()})
        work = "is in use" if stack.processes or _vfs(host, stack) else "is set up"
        held = ", ".join(_held(host, stack))
        yield Finding(
            f"stack.{stack.id}",
            "warning" if stack.processes else "info",
            host.shown,
            f"{entry['title']} {work} ({', '.join(stack.signs)}){f': it holds {held}' if held else ''}.",
            entry["advice"],
            source=tuple(entry["source"]),
        )


def _held(host: Seen, stack: Stack) -> t.Iterator[str]:
    if stack.memory_mib >= 512:
        yield f"{stack.memory_mib / 1024:.0f} GiB of memory"
    if stack.ports:
        yield f"TCP port{'s' if len(stack.ports) > 1 else ''} {', '.join(map(str, stack.ports[:12]))}"
    vfs = _vfs(host, stack)
    if vfs:
        yield f"VF{'s' if len(vfs) > 1 else ''} {', '.join(vfs)}"


def _vfs(host: Seen, stack: Stack) -> list[str]:
    """Return the VFs that a stack's processes use; for K3s, also those in pods."""
    pids = {str(pid) for pid in stack.pids}
    found = []
    for function in host.node.functions if host.node else ():
        for vf in function.vfs:
            users = {user.rpartition("(")[2].rstrip(")") for user in (*vf.users, *vf.open_by)}
            if users & pids or (stack.id == "k3s" and vf.place.state == "pod"):
                name = function.netdev.name if function.netdev else function.pci
                found.append(f"{vf.index} of {name}")
    return found


def _versions(seen: t.Sequence[Seen], bad: t.Sequence[Entry]) -> t.Iterator[Finding]:
    hosts: dict[str, list[str]] = {}
    found: dict[str, tuple[Finding, str]] = {}
    for host in seen:
        for finding, version in known_bad.node_findings(host.health, host.node, bad):
            hosts.setdefault(finding.id, []).append(host.name)
            found[finding.id] = finding, version
    for name, (finding, version) in found.items():
        message = f"{finding.names[0]} {version} is known to be bad. {finding.message}"
        yield Finding(
            name,
            "warning" if finding.severity == "error" else finding.severity,
            ", ".join(hosts[name]),
            message,
            finding.remedy,
            source=finding.source,
        )


def _foreign(seen: t.Sequence[Seen], made: Composed) -> t.Iterator[Finding]:
    by_path: dict[str, list[str]] = {}
    for host, path in foreign_files(seen, made):
        by_path.setdefault(path, []).append(host)
    for path, hosts in by_path.items():
        yield Finding(
            "netplan.foreign",
            "warning",
            ", ".join(hosts),
            f"{path} configures interfaces of the fabric, too.",
            "Let netplan_vf take those stanzas over (netplan_vf_foreign_stanzas: absorb), or remove them yourself.",
        )


def _host(host: Seen, made: Composed, stacks: t.Mapping[str, Entry], named: t.Mapping[tuple[str, int], str]) -> Plain:
    versions = known_bad.node_versions(host.health, host.node)
    memory = host.health.memory if host.health else {}
    kib = memory.get("MemAvailable") or (host.node.mem_available_kib if host.node else None)
    used = made.used(host.name) if host.name in made.slots else {}
    return {
        "name": host.name,
        "typed": host.typed,
        "status": "seen" if host.node else "not seen",
        "reason": host.error,
        "versions": versions,
        "free_gib": kib // KIB_PER_GIB if kib else None,
        "total_gib": memory["MemTotal"] // KIB_PER_GIB if memory.get("MemTotal") else None,
        "functions": [
            _function(slot, function, slot in used) | {"segment": named.get((host.name, int(slot[1])))}
            for slot, function in made.slots.get(host.name, {}).items()
        ],
        "stacks": [
            {
                "title": stacks.get(stack.id, {"title": stack.id})["title"],
                "signs": list(stack.signs),
                "held": list(_held(host, stack)),
            }
            for stack in (host.survey.stacks if host.survey else ())
        ],
    }


def _function(slot: str, function: Function, used: bool) -> Plain:
    netdev = function.netdev
    return {
        "slot": slot,
        "netdev": netdev.name if netdev else None,
        "pci": function.pci,
        "link": bool(netdev and netdev.carrier),
        "gbps": netdev.speed_mbps // 1000 if netdev and netdev.speed_mbps else None,
        "totalvfs": function.totalvfs,
        "numvfs": function.numvfs,
        "used": used,
        "vfs": [],
    }


def lines(shown: Plain) -> list[str]:
    """Return a view's lines for a terminal: plain ASCII, aligned."""
    told = [shown["headline"], "", *_aligned([_HEAD, *(_row(host) for host in shown["hosts"])])]
    functions = [
        (
            f"  {host['name']}",
            each["slot"],
            each["netdev"] or each["pci"],
            f"{each['gbps'] or '?'} Gb/s" if each["link"] else "no link",
            f"{each['totalvfs'] or 0} VFs allowed, {each['numvfs'] or 0} there",
            "" if each["used"] or shown["settings"] is None else "left out",
        )
        for host in shown["hosts"]
        for each in host["functions"]
    ]
    told += ["", "FUNCTIONS", *_aligned(functions)] if functions else []
    told += ["", "CABLES", *(f"  {wire}" for wire in shown["wires"])] if shown["wires"] else []
    settings = shown["settings"]
    if settings:
        reserved = ", ".join(f"{name} {text}" for name, text in settings["reserved_networks"].items())
        told += ["", "NETWORKS", f"  fabric     {settings['address_pool']}"]
        told += [
            f"  management {', '.join(settings['management_networks']) or 'not known'}",
            f"  kept clear {reserved}",
        ]
        told += [f"  VFs        {settings['vf_count']} on each function"] if "vf_count" in settings else []
    for finding in shown["findings"]:
        told += ["", f"{finding['severity'].upper()}: {finding['subject']}: {finding['message']} [{finding['id']}]"]
        told += [f"  remedy: {finding['remedy']}"] if finding["remedy"] else []
    told += ["", "RESTS ON", *(f"  {text}" for text in shown["rests_on"])] if shown["rests_on"] else []
    return told


def _row(host: Plain) -> tuple[str, ...]:
    versions = [host["versions"].get(key, "-") for key in _VERSIONS]
    free = "-" if host["free_gib"] is None else f"{host['free_gib']}"
    total = f" of {host['total_gib']}" if host["total_gib"] else ""
    return host["name"], host["typed"], host["status"], *versions, free + total


def _aligned(rows: t.Sequence[t.Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
