# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL's environment of each rank, from the fabric plan. A variable that need not be set is left out: an empty one
counts as a value."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError, PlannedHost, PlannedVf

TRANSPORTS = ("roce", "socket")
ATTACHMENTS = ("vf", "host")


@dataclass(frozen=True)
class Options:
    """What an owner may choose.

    vf_index: the VF of the instance. attachment: `vf` (Multus gives the pod the VFs, as net1, net2 …) or `host`.
    bootstrap: interface for start-up traffic where it is not the first VF. gid_index: pinned; None leaves it to NCCL,
    which finds it for each device. merge_nics, debug: passed on where given.
    """

    vf_index: int = 0
    attachment: str = "vf"
    transport: str = "roce"
    bootstrap: str | None = None
    gid_index: int | None = None
    merge_nics: bool | None = None
    debug: str | None = None


def rails(host: PlannedHost, index: int) -> list[PlannedVf]:
    """Return the VFs of one index on all functions of a host, in order; FabricError where there is none."""
    found = [vf for function in host.functions for vf in function.vfs if vf.index == index]
    if not found:
        raise FabricError(
            f"{host.name}: vf_index: the fabric plan has no VF {index} on any function. "
            "Choose one of its indices, or raise vf_count."
        )
    return found


def address(host: PlannedHost, index: int) -> str:
    """Return the address at which the other ranks find this host: that of its first VF."""
    return rails(host, index)[0].address


def _bootstrap(vfs: t.Sequence[PlannedVf], options: Options) -> str | None:
    return options.bootstrap or ("net1" if options.attachment == "vf" else vfs[0].netdev)


def unseen(host: PlannedHost, options: Options) -> str:
    """Say which name the variables need that was not read of this host yet; empty where there is none."""
    vfs = rails(host, options.vf_index)
    if _bootstrap(vfs, options) is None:
        return (
            f"{host.name}: the name of VF {options.vf_index}'s interface is not known. Make the VFs and gather "
            "roce_info first, or say which interface is for start-up (bootstrap)."
        )
    unknown = [vf for vf in vfs if not vf.hca and options.transport == "roce"]
    if unknown:
        return (
            f"{host.name}: the HCA of VF {options.vf_index} (MAC {unknown[0].mac}) is not known. "
            "Make the VFs and gather roce_info first: the name is read of the node."
        )
    return ""


def environment(
    hosts: t.Sequence[PlannedHost],
    options: Options | None = None,
    *,
    engine: str = "sglang",
    workarounds: t.Mapping[str, str] | None = None,
) -> dict[str, dict[str, str]]:
    """Return host → variables for all ranks of an instance.

    One rank alone gets no network at all. RoCE sets NCCL_NET=IB, so that NCCL refuses to start where it would otherwise
    fall back to sockets without an error. HCAs and interfaces are named exactly (`=name`): NCCL matches by prefix, and
    `rocep1s0f0` also means its VFs. workarounds: of known bad versions. FabricError where an HCA's name is not known:
    it is read of the node, never made up.
    """
    options = options or Options()
    if options.transport not in TRANSPORTS:
        raise FabricError(f"transport: {options.transport!r} is not one of {', '.join(TRANSPORTS)}.")
    if options.attachment not in ATTACHMENTS:
        raise FabricError(f"attachment: {options.attachment!r} is not one of {', '.join(ATTACHMENTS)}.")
    return {host.name: _rank(host, len(hosts), options, engine, workarounds or {}) for host in hosts}


def _rank(
    host: PlannedHost, ranks: int, options: Options, engine: str, workarounds: t.Mapping[str, str]
) -> dict[str, str]:
    env = dict(workarounds)
    if options.debug:
        env["NCCL_DEBUG"] = options.debug
    if ranks == 1:
        return env
    if unread := unseen(host, options):
        raise FabricError(unread)
    vfs = rails(host, options.vf_index)
    name = _bootstrap(vfs, options)
    # NCCL takes `=` for an exact name; Gloo and SGLang's TP socket know plain names only.
    env |= {"NCCL_SOCKET_IFNAME": f"={name}", "GLOO_SOCKET_IFNAME": name}
    if engine == "sglang":
        env["TP_SOCKET_IFNAME"] = name
    elif engine == "vllm":
        env["VLLM_HOST_IP"] = vfs[0].address
    if options.transport == "socket":
        return env | {"NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1"}
    env |= {"NCCL_NET": "IB", "NCCL_IB_HCA": "=" + ",".join(f"{vf.hca}:1" for vf in vfs)}
    if len({vf.subnet for vf in vfs}) > 1:
        env["NCCL_CROSS_NIC"] = "0"  # rails are subnets of their own, and nothing routes between them
    if options.gid_index is not None:
        env["NCCL_IB_GID_INDEX"] = str(options.gid_index)
    if options.merge_nics is not None:
        env["NCCL_IB_MERGE_NICS"] = "1" if options.merge_nics else "0"
    return env
