# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL's environment for each rank, from the fabric plan. Unneeded variables are left out, because NCCL treats an empty
one as a value."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.gids import GidEntry
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, PlannedHost, PlannedVf

TRANSPORTS = ("roce", "socket")
ATTACHMENTS = ("vf", "host")
ENGINES = ("sglang", "vllm", "any")
_HOST_IP = {"SGLANG_HOST_IP": "sglang", "VLLM_HOST_IP": "vllm"}
_ALL_NEIGHBOURS = 3  # hosts of the largest ring in which each has a cable to each
_NCCL_PREFIX = 24  # bits of two GIDs' IPv4 that NCCL compares if NCCL_IB_SUBNET_PREFIX_LEN is not set


@dataclass(frozen=True)
class Options:
    """The owner's options.

    vf_index: the instance's VF; None is the first one that is not for serving, which no pod takes away.
    attachment: `vf` (Multus gives the pod the VFs, as net1, net2 …) or `host`. bootstrap: interface for start-up traffic,
    if not the first VF; head: the first rank's address on it. gid_index: pinned; with None, NCCL finds it for each
    device. gids: by host, the proof of a pinned index. merge_nics, debug: passed on if given.
    """

    vf_index: int | None = 0
    attachment: str = "vf"
    transport: str = "roce"
    bootstrap: str | None = None
    head: str | None = None
    gid_index: int | None = None
    gids: dict[str, tuple[GidEntry, ...]] | None = None
    merge_nics: bool | None = None
    debug: str | None = None


@dataclass(frozen=True)
class _Wiring:
    """The VFs of each rank that lead to other ranks. joined: every rank reaches every other over each of them.

    ring: each rank reaches its two neighbours only.
    """

    vfs: dict[str, list[PlannedVf]]
    joined: bool
    ring: bool = False


def _own(host: PlannedHost, index: int) -> dict[str, list[PlannedVf]]:
    """Return the VFs of one index by segment. CollectionError if there are none."""
    found: dict[str, list[PlannedVf]] = {}
    for function in host.functions:
        for vf in function.vfs:
            if vf.index == index:
                found.setdefault(function.segment, []).append(vf)
    if not found:
        raise CollectionError(
            f"{host.name}: vf_index: the fabric plan has no VF {index} on any function. "
            "Choose one of its indices, or raise vf_count."
        )
    return found


def chosen_index(hosts: t.Sequence[PlannedHost], chosen: int | None) -> int:
    """Return the VF index: the chosen one, else the first that is not for serving, else 0."""
    if chosen is not None:
        return chosen
    free = {vf.index for host in hosts for f in host.functions for vf in f.vfs if vf.purpose != "serving"}
    return min(free, default=0)


def _wire(hosts: t.Sequence[PlannedHost], index: int) -> _Wiring:
    """Find the VFs that lead to other ranks.

    Ranks on one switch, or at both ends of the same cables, use the segments they share, in the same order. If cables
    lead to different neighbours (triangle, ring), each rank uses all VFs that lead to another rank. CollectionError unless
    the cables then lead from each rank to the next, and from the last to the first: collectives go around along them.
    """
    own = {host.name: _own(host, index) for host in hosts}
    shared = set.intersection(*(set(segments) for segments in own.values()))
    vfs: dict[str, list[PlannedVf]] = {}
    for name, segments in own.items():
        others = shared or {segment for other, theirs in own.items() if other != name for segment in theirs}
        vfs[name] = [vf for segment in sorted(segments) if segment in others for vf in segments[segment]]
        if not vfs[name]:
            raise CollectionError(
                f"{name}: no cable leads to another rank ({', '.join(n for n in own if n != name)}). "
                "Choose ranks that are neighbours, or add the hosts between them."
            )
    if not shared:
        _check_ring({name: set(segments) for name, segments in own.items()})
    return _Wiring(vfs, bool(shared), ring=not shared and len(hosts) > _ALL_NEIGHBOURS)


def _check_ring(segments: t.Mapping[str, set[str]]) -> None:
    """Refuse ranks that are not neighbours in their order."""
    names = list(segments)
    gaps = [
        (one, other)
        for one, other in zip(names, [*names[1:], names[0]], strict=True)
        if not segments[one] & segments[other]
    ]
    if gaps:
        one, other = gaps[0]
        raise CollectionError(
            f"{one}: no cable leads to {other}, and the ranks {', '.join(names)} need one from each to the next and from the last to "
            "the first: NCCL's ring passes along them, and nothing routes RDMA over a host between two. Choose all hosts of the "
            "ring, in the order of its cables, or two neighbours."
        )


def joined(hosts: t.Sequence[PlannedHost], options: Options) -> bool:
    """Whether every rank reaches every other over each of its VFs: on a switch, or at both ends of the same cables."""
    return _wire(hosts, chosen_index(hosts, options.vf_index)).joined


def address(hosts: t.Sequence[PlannedHost], options: Options) -> str:
    """Return the address at which other ranks find the first host: that of its first VF, or `head`.

    CollectionError if cables lead to different neighbours and `head` is not given, because no VF then reaches all ranks.
    """
    if options.head:
        return options.head
    wiring = _wire(hosts, chosen_index(hosts, options.vf_index))
    if not wiring.joined:
        raise CollectionError(
            f"{hosts[0].name}: none of its fabric addresses is reachable from all ranks, since their cables lead to different "
            "neighbours. Give its address on the management network, or on the pod network (head)."
        )
    return wiring.vfs[hosts[0].name][0].address


def _unread(name: str, vfs: t.Sequence[PlannedVf], options: Options) -> str:
    """Return which name this host's variables need that has not been read from it yet; empty if none."""
    remedy = "Create the VFs and gather roce_info first"
    if options.bootstrap is None and options.attachment == "host" and vfs[0].netdev is None:
        return (
            f"{name}: the name of VF {vfs[0].index}'s interface is not known. {remedy}, or name the interface for "
            "start-up (bootstrap)."
        )
    unknown = [vf for vf in vfs if not vf.hca]
    if unknown and options.transport == "roce":
        return (
            f"{name}: the HCA of VF {unknown[0].index} (MAC {unknown[0].mac}) is not known. {remedy}: the name is read from "
            "the node."
        )
    return ""


def unseen(hosts: t.Sequence[PlannedHost], options: Options) -> dict[str, str]:
    """Return host → the name that its variables need and that has not been read yet; complete hosts are left out."""
    wiring = _wire(hosts, chosen_index(hosts, options.vf_index))
    said = {host.name: _unread(host.name, wiring.vfs[host.name], options) for host in hosts}
    return {name: text for name, text in said.items() if text}


def environment(
    hosts: t.Sequence[PlannedHost],
    options: Options | None = None,
    *,
    engine: str = "sglang",
    workarounds: t.Mapping[str, str] | None = None,
    only: t.Collection[str] | None = None,
) -> dict[str, dict[str, str]]:
    """Return host → variables for an instance's ranks; only: restricts the result to these hosts.

    A single rank gets no network at all. RoCE sets NCCL_NET=IB, so that NCCL refuses to start instead of silently falling
    back to sockets. HCAs and interfaces are named exactly (`=name`): NCCL matches by prefix, so `rocep1s0f0` would also
    match its VFs. engine: whose own variables to include, `any` for all. workarounds: of known-bad versions.
    CollectionError if an HCA's name is unknown (it is read from the node, never guessed), or if a pinned GID index is
    not proven.
    """
    options = options or Options()
    for what, value, known in (
        ("transport", options.transport, TRANSPORTS),
        ("attachment", options.attachment, ATTACHMENTS),
        ("engine", engine, ENGINES),
    ):
        if value not in known:
            raise CollectionError(f"{what}: {value!r} is not one of {', '.join(known)}.")
    for what in ("bootstrap", "head", "debug"):
        if getattr(options, what) == "":
            raise CollectionError(f"{what}: an empty string is not a valid value. Leave it out instead.")
    wanted = [host for host in hosts if only is None or host.name in only]
    common = dict(workarounds or {})
    if options.debug is not None:
        common["NCCL_DEBUG"] = options.debug
    env = {host.name: dict(common) for host in wanted}
    if len(hosts) > 1:
        wiring = _wire(hosts, chosen_index(hosts, options.vf_index))
        for host in wanted:
            if unread := _unread(host.name, wiring.vfs[host.name], options):
                raise CollectionError(unread)
            env[host.name] |= _start_up(host, wiring, options, engine) | _transport(host, wiring, options)
    for name, variables in env.items():
        for key, value in variables.items():
            if not value:
                raise CollectionError(
                    f"{name}: {key} would be empty, and NCCL takes that as a value. Leave it out instead."
                )
    return env


def _start_up(host: PlannedHost, wiring: _Wiring, options: Options, engine: str) -> dict[str, str]:
    """Return the variables that name the interface of start-up traffic."""
    vfs = wiring.vfs[host.name]
    name = options.bootstrap
    if name is None and not wiring.joined:
        raise CollectionError(
            f"{host.name}: the ranks' cables lead to different neighbours, so no VF reaches all of them for start-up. "
            "Name an interface that does (bootstrap; nccl_bootstrap for the role nccl): eth0 in a pod, the management one on a host."
        )
    if name is None:
        name = "net1" if options.attachment == "vf" else vfs[0].netdev or ""  # `_unread` refuses an unknown name
    # NCCL reads `=` as an exact match; Gloo and SGLang's TP socket accept plain names only.
    env = {"NCCL_SOCKET_IFNAME": f"={name}", "GLOO_SOCKET_IFNAME": name}
    if engine in ("sglang", "any"):
        env["TP_SOCKET_IFNAME"] = name
    if wiring.joined:
        # The address that a rank's message queue or worker tells the others; without it that of the default route.
        env |= {of: vfs[0].address for of in _HOST_IP if engine in (_HOST_IP[of], "any")}
    return env


def _transport(host: PlannedHost, wiring: _Wiring, options: Options) -> dict[str, str]:
    """Return the variables that select the network."""
    if options.transport == "socket":
        return {"NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1"}
    vfs = wiring.vfs[host.name]
    env = {"NCCL_NET": "IB", "NCCL_IB_HCA": "=" + ",".join(f"{vf.hca}:1" for vf in vfs)}
    if options.gid_index is not None:
        env["NCCL_IB_GID_INDEX"] = _pinned(host.name, vfs, options)
    if not wiring.joined:
        return env | _neighbours(host.name, vfs, wiring.ring, options)
    if len({vf.subnet for vf in vfs}) > 1:
        env["NCCL_CROSS_NIC"] = "0"  # each rail is a subnet of its own, with no routing between them
    if options.merge_nics is not None:
        env["NCCL_IB_MERGE_NICS"] = "1" if options.merge_nics else "0"
    return env


def _neighbours(name: str, vfs: t.Sequence[PlannedVf], ring: bool, options: Options) -> dict[str, str]:
    """Return what NCCL needs if each port leads to another rank.

    NCCL assigns channels to HCAs in turn and pairs them by number; by subnet it finds the HCA that leads to the peer
    (src/transport/net_ib/connect.cc, NCCL 2.30u1 and newer). Merged HCAs would all have to reach it.
    """
    if options.merge_nics:
        raise CollectionError(
            f"{name}: merge_nics: HCAs whose cables lead to different neighbours cannot be merged into one. Leave it out."
        )
    env = {"NCCL_IB_SUBNET_AWARE_ROUTING": "1", "NCCL_IB_MERGE_NICS": "0"}
    if ring:
        env["NCCL_ALGO"] = (
            "Ring"  # trees, which NCCL would choose for small messages, connect ranks that share no cable
        )
    prefixes = {vf.prefix for vf in vfs}
    if prefixes != {_NCCL_PREFIX}:
        env["NCCL_IB_SUBNET_PREFIX_LEN"] = str(max(prefixes))
    return env


def _pinned(name: str, vfs: t.Sequence[PlannedVf], options: Options) -> str:
    """Return the pinned GID index. CollectionError unless it is proven for each of the rank's VFs."""
    if not options.gids or name not in options.gids:
        raise CollectionError(
            f"{name}: gid_index: {options.gid_index} is pinned, but nothing proves it. Pass what roce_gid found on this "
            "host (gids), or leave gid_index out: NCCL 2.21 and newer find the index of each device themselves."
        )
    seen = {entry.address: entry.index for entry in options.gids[name]}
    for vf in vfs:
        if seen.get(vf.address) != options.gid_index:
            raise CollectionError(
                f"{name}: gid_index: {options.gid_index} is pinned, but {vf.hca} has {vf.address} at "
                f"{seen.get(vf.address, 'no index')}. Leave gid_index out: NCCL finds the index of each device itself."
            )
    return str(options.gid_index)
