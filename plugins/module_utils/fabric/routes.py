# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The route to an address's own network. The kernel makes it with the address; once it is lost, an address that is there helps nothing.

systemd-networkd (257) leaves an address alone that is as it should be, and netplan has nothing to apply: only we set it again.
"""

from __future__ import annotations

import typing as t
from collections.abc import Sequence
from ipaddress import IPv4Interface

from ansible_collections.dgxspark.cluster.plugins.module_utils import foreign
from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import Run, run_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Change, CollectionError, Finding, Netdev

WHAT = "route"  # of a Change


def read(run: Run) -> dict[str, tuple[str, ...]] | None:
    """Return the IPv4 networks to which each interface has a route, in any table; None if `ip` does not tell."""
    return _by_interface(run_json(run, ["ip", "-j", "-4", "route", "show", "table", "all"]))


def _by_interface(routes: t.Any) -> dict[str, tuple[str, ...]] | None:
    if not isinstance(routes, list):
        return None
    found: dict[str, tuple[str, ...]] = {}
    for route in routes:
        if not isinstance(route, dict) or route.get("type") not in (None, "unicast"):
            continue
        hops = route.get("nexthops")
        for hop in (route, *(hops if isinstance(hops, list) else ())):
            name, network = (str(hop.get("dev", "")), str(route.get("dst", ""))) if isinstance(hop, dict) else ("", "")
            if name and "/" in network:
                found[name] = (*found.get(name, ()), network)
    return found


def lost(netdev: Netdev, addresses: Sequence[str]) -> list[Change]:
    """Return the routes that an interface lacks for those of the addresses that it has.

    None are judged where they were not read, or the link is down: they come with the link.
    """
    if netdev.routes is None or netdev.operstate not in ("up", "unknown", None):
        return []
    found = []
    for text in addresses:
        address = IPv4Interface(text)
        network = str(address.network)
        if text in netdev.ipv4 and address.network.prefixlen < 32 and network not in netdev.routes:
            found.append(Change(netdev.name, WHAT, None, f"{network} src {address.ip}"))
    return found


def alone(changes: Sequence[Change]) -> bool:
    """Whether nothing but routes differs, for which netplan does nothing."""
    return all(change.what == WHAT for change in changes)


def restore(run: Run, changes: Sequence[Change]) -> None:
    """Set the routes of `lost` again, as the kernel makes them.

    Raises CollectionError with a finding for each that cannot be set. A route to the same network by another interface is kept.
    """
    findings = []
    for change in changes:
        network, name = change.after.split()[0], change.subject
        words = ["ip", "-4", "route", "add", *change.after.split(), "dev", name, "proto", "kernel", "scope", "link"]
        rc, out, err = run(words)
        if rc == 0:
            continue
        there = _by_interface(run_json(run, ["ip", "-j", "-4", "route", "show", network])) or {}
        taken = [other for other, networks in there.items() if network in networks and other != name]
        message = f"it has its address, but no route to {network}, so that nothing is sent through it; "
        if taken:
            message += f"{' and '.join(taken)} has that route instead."
            remedy = (
                f"`ip -4 route del {network} dev {taken[0]}`, and take it out of what sets it there; then run again."
            )
        else:
            message += f"it could not be set: {foreign.line(err or out, 200).strip() or f'exit status {rc}'}."
            remedy = f"`ip link set {name} down; ip link set {name} up` has the kernel make it again; then run again."
        findings.append(Finding("netplan.no-route", "error", name, message, remedy))
    if findings:
        raise CollectionError("\n".join(map(str, findings)), findings=findings)
