# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NCCL's own reader says of logs that are explained: which network the traffic takes, and why.

A line alone does not show that: whether it is a fault that no RDMA device was found depends on the channels, and on what was asked.
"""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Evidence
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import transport
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.verdict import Expected
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.signatures import Traffic

# The verdict's causes that say why there is no RDMA, the plainest first.
_WHY = (
    "ib-disabled",
    "socket-asked",
    "hca-is-netdev",
    "device-not-open",
    "hca-unusable",
    "no-device-in-pod",
    "no-active-device",
    "not-all-rdma",
    "network-other",
    "tcp-unexplained",
)
_SOURCE = ["NCCL src/transport/net_ib, src/transport/net_socket.cc and src/transport/net.cc: its channel lines"]


def traffic(evidence: Evidence, planned: bool = False, overlays: t.Sequence[str] = ()) -> Traffic | None:
    """Return what NCCL's lines prove, None if there are none of a communicator.

    planned: whether the owner's fabric is to carry the traffic; TCP is then an error, not only slow.
    """
    if not evidence.processes and not evidence.stray:
        return None
    try:
        made = transport.report(evidence, Expected(), overlays)
    except CollectionError:
        return None
    kind = _kind(made)
    why = [found for name in _WHY for found in made["findings"] if found["id"] == f"nccl.{name}"]
    if kind in ("ib", "p2p", "unknown") or (kind == "failed" and not why):
        return Traffic(
            made["verdict"], made["summary"], devices_matter=not (kind in ("ib", "p2p") or _on_one_node(made))
        )
    if kind == "chosen" or made["verdict"] == "failed":
        why = why or [_unexplained(made)]
    return _fault(made, kind, why[:1], planned or _meant(evidence))


def _kind(made: dict[str, t.Any]) -> str:
    """Return the verdict, but what a failed run used, and what one that ends early has `chosen`."""
    networks = {link["transport"] for link in made["links"] if (link["transport"] or "").startswith("NET/")}
    if made["verdict"] == "failed" and networks == {"NET/Socket"}:
        return "socket"
    return "chosen" if made["verdict"] == "unknown" and _will_be_tcp(made) else str(made["verdict"])


def _on_one_node(made: dict[str, t.Any]) -> bool:
    return bool(made["communicators"]) and all(comm["nodes"] == 1 for comm in made["communicators"])


def _fault(made: dict[str, t.Any], kind: str, why: list[dict[str, t.Any]], planned: bool) -> Traffic:
    reason = f": {why[0]['message']}" if why else "."
    asked = bool(why) and why[0]["id"] in ("nccl.ib-disabled", "nccl.socket-asked")
    says = {
        "socket": "The ranks' traffic goes over TCP sockets, not RDMA, at a fraction of the speed",
        "mixed": "Some of the ranks' traffic does not go over RDMA, and the slowest channel sets the speed",
        "failed": "The ranks have no RDMA device that NCCL can use",
        "chosen": "NCCL has chosen TCP sockets, not RDMA, for the ranks' traffic, at a fraction of the speed",
    }
    meant = " RoCE was planned." if planned and not asked and kind != "failed" else ""
    remedy = why[0]["remedy"] if why else "Find out why with dgxspark.cluster.verify or the role nccl."
    refuse = "" if "NCCL_NET=IB" in remedy else " With NCCL_NET=IB on every rank, NCCL refuses to start without RDMA."
    return Traffic(
        "socket" if kind == "chosen" else made["verdict"],
        made["summary"],
        "error" if planned or asked or kind == "failed" else "warning",
        f"{says[kind]}{reason}{meant}",
        f"{remedy}{refuse}",
        _SOURCE,
    )


def _will_be_tcp(made: dict[str, t.Any]) -> bool:
    """Whether a job of several nodes has chosen TCP, and its log ends before its channels are connected."""
    networks = {rank["network"] for rank in made["ranks"] if rank["network"]}
    return networks == {"Socket"} and any((comm["nodes"] or 0) > 1 for comm in made["communicators"])


def _unexplained(made: dict[str, t.Any]) -> dict[str, t.Any]:
    if any(rank["no_device_found"] for rank in made["ranks"]):
        message = "it found no RDMA device that it may use."
    else:
        message = "its log does not say why."
    return {
        "id": "nccl.tcp-unexplained",
        "message": message,
        "remedy": "Look at `rdma link` on the node and at /dev/infiniband in the container, and set NCCL_NET=IB.",
    }


def _meant(evidence: Evidence) -> bool:
    """Whether the job's own settings ask for RDMA: NCCL_NET=IB, or anything of NCCL_IB_* but to switch it off."""
    said = [evidence.settings, *(process.settings for process in evidence.processes)]
    return any(
        (name == "NCCL_NET" and value.upper().startswith("IB"))
        or (name.startswith("NCCL_IB_") and name != "NCCL_IB_DISABLE")
        for settings in said
        for name, value in settings.items()
    )
