# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the networks in use on the nodes, and free ones for the fabric, pods and services."""

from __future__ import annotations

import itertools
import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Finding, Function, Netdev
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import ip
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.discover.seen import Seen
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.settings import DEFAULTS, RESERVED

Net = t.Any  # netaddr.IPNetwork

# In order of preference; the first is the settings' default.
_POOLS = [f"10.{n}.0.0/16" for n in (*range(100, 200), *range(200, 251))]
_POOLS += [f"172.{n}.0.0/16" for n in range(18, 32)] + ["192.168.0.0/16"]
_PODS = [f"10.{n}.0.0/16" for n in range(42, 99, 2)] + [f"172.{n}.0.0/16" for n in range(18, 31, 2)]
_SERVICES = [f"10.{n}.0.0/16" for n in range(43, 99, 2)] + [f"172.{n}.0.0/16" for n in range(19, 32, 2)]
_IGNORED = ("127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "0.0.0.0/8")


@dataclass(slots=True)
class Networks:
    """The chosen networks. management and others are in use; others by name. why: reasons for choices that are not the default."""

    pool: str
    pods: str
    services: str
    management: list[str] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def networks(seen: t.Sequence[Seen], functions: t.Mapping[str, t.Collection[Function]]) -> Networks:
    """Choose networks that nothing on any node uses.

    functions: the fabric's, by host. Their VFs' addresses are the fabric's own: if they are all in one network, the fabric
    keeps it.
    """
    made = Networks(str(DEFAULTS["address_pool"]), RESERVED["pods"], RESERVED["services"])
    used: dict[Net, str] = {}
    own: list[Net] = []
    for host in seen:
        own += _in_use(host, functions.get(host.name, ()), made, used)
    kept = {ip.network(f"{net.ip}/16") for net in own if not net.ip.is_global()}
    k3s: dict[str, str] = {}
    for host in seen:
        if _has_k3s(host):
            k3s |= {"pods": RESERVED["pods"], "services": RESERVED["services"]} if not k3s else {}
            k3s |= (host.survey.k3s if host.survey else None) or {}
    for name in ("pods", "services"):
        if name in k3s:
            setattr(made, name, str(ip.network(k3s[name])))
            if k3s[name] != RESERVED[name]:
                made.why[name] = "since K3s uses it"
            for net in [net for net in used if net in ip.network(k3s[name])]:
                del used[net]
    made.others = {
        name: text for name, text in made.others.items() if ip.network(text) in used and text not in made.management
    }
    for name, wanted in (("pods", _PODS), ("services", _SERVICES)):
        if name not in k3s:
            _choose(made, name, wanted, used)
        used.setdefault(ip.network(getattr(made, name)), f"the {name}")
    keeps = [str(net) for net in kept] if len(kept) == 1 else []
    _choose(made, "pool", keeps + _POOLS, used)
    if keeps and made.pool == keeps[0] and made.pool != DEFAULTS["address_pool"]:
        made.why.setdefault("pool", "since the VFs use it")
    return made


def _in_use(host: Seen, functions: t.Collection[Function], made: Networks, used: dict[Net, str]) -> list[Net]:
    """Add the networks that a host uses; return those of the fabric's own VFs."""
    node, survey = host.node, host.survey
    ours = [vf.netdev for function in functions for vf in function.vfs if vf.netdev]
    names = {netdev.name for netdev in ours if netdev}
    away = {vf.netdev.name for f in functions for vf in f.vfs if vf.netdev and vf.place.state != "host"}
    listed: list[tuple[str | None, str, str]] = []
    netdevs: list[Netdev] = list(node.other) if node else []
    for function in node.functions if node else ():
        netdevs += [function.netdev] if function.netdev else []
        if function not in functions:
            netdevs += [vf.netdev for vf in function.vfs if vf.netdev]
    for netdev in netdevs:
        listed += [(netdev.name, address, f"{host.name}: {netdev.name}") for address in netdev.ipv4]
    for each in survey.networks if survey else ():
        if each.dev is None or each.dev not in names - away:
            listed.append((each.dev, each.network, f"{host.name}: {each.dev or each.why}"))
    # The interface towards the controller: the one with the host's address, else the one with the default route.
    address = str(host.reach.get("ansible_host") or host.typed)
    uplinks = {netdev.name for netdev in netdevs if any(text.split("/")[0] == address for text in netdev.ipv4)}
    uplinks |= {survey.uplink} if survey and survey.uplink and not uplinks else set()
    for dev, text, where in listed:
        net = ip.network(text)
        if net.prefixlen and not any(net in ip.network(ignored) for ignored in _IGNORED):
            used.setdefault(net, where)
            if dev in uplinks and net.prefixlen < 31:
                made.management += [str(net)] if str(net) not in made.management else []
            elif net.prefixlen < 31 and str(net) not in made.others.values():
                made.others[_free_name(made.others, dev or "docker")] = str(net)
    return [ip.network(text) for netdev in ours for text in netdev.ipv4]


def _free_name(taken: t.Container[str], name: str) -> str:
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(each for each in names if each not in taken and each not in RESERVED)


def _has_k3s(host: Seen) -> bool:
    return bool(host.machine and (host.machine.k3s.version or host.machine.k3s.data)) or bool(
        host.survey and host.survey.k3s
    )


def _choose(made: Networks, name: str, wanted: t.Sequence[str], used: t.Mapping[Net, str]) -> None:
    """Choose the first free network."""
    default = getattr(made, name)
    for text in wanted:
        if not _clash(ip.network(text), used):
            setattr(made, name, text)
            break
    else:
        where = _clash(ip.network(default), used)
        made.findings.append(
            Finding(
                "networks.none-free",
                "error",
                name,
                f"no private network of the usual size is free for it; {default} overlaps {where}.",
                "Remove a route or a network that is not needed, such as that of a VPN.",
            )
        )
        return
    clash = _clash(ip.network(default), used)
    if getattr(made, name) != default and clash:
        made.why[name] = f"since {default} overlaps {clash}"


def _clash(net: Net, used: t.Mapping[Net, str]) -> str | None:
    return next((f"{other} ({where})" for other, where in used.items() if net in other or other in net), None)
