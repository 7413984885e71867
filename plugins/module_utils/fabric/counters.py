# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA port counters: how a node reads them, and what two readings prove.

`counters/port_xmit_data` and `port_rcv_data` count 4-byte words, and on mlx5 only RDMA, not TCP (Linux,
Documentation/ABI/stable/sysfs-class-infiniband; drivers/infiniband/hw/mlx5/mad.c takes the transmitted_ib and received_ib
counters of the vport). soft-RoCE has no such folder, but counts packets in `hw_counters`.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import read_in
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

WORD = 4  # bytes
FULL = frozenset({2**32 - 1, 2**64 - 1})  # a counter that does not wrap stops here

# Traffic counters, preferred ones first: sent, received.
DATA = (("port_xmit_data", "port_rcv_data"),)
PACKETS = (("port_xmit_packets", "port_rcv_packets"), ("sent_pkts", "rcvd_pkts"))
# These should not increase: lost, retransmitted or refused packets. Not *_cqe_error: a closing queue pair's completions count there.
ERRORS = (
    "port_xmit_discards",
    "port_rcv_errors",
    "link_downed",
    "local_ack_timeout_err",
    "out_of_sequence",
    "out_of_seq_request",  # soft-RoCE's names (drivers/infiniband/sw/rxe/rxe_hw_counters.c)
    "rcvd_seq_err",
    "completer_retry_err",
    "duplicate_request",  # what the other end sent again: mlx5, too
    "roce_adp_retrans",  # mlx5 (Documentation of NVIDIA's "RDMA hardware counters")
    "packet_seq_err",
    "implied_nak_seq_err",
    "rnr_nak_retry_err",
    "retry_exceeded_err",
    "retry_rnr_exceeded_err",
    "send_err",
)


@dataclass(frozen=True, slots=True)
class PortCounters:
    """One reading of one port of one HCA. guid: shows whether it is still the same device."""

    hca: str
    port: int
    guid: str | None
    counts: dict[str, int] = field(default_factory=dict)


def read_counters(sysfs: Sysfs, hcas: t.Collection[str] = ()) -> list[PortCounters]:
    """Read the counters of these HCAs, or of all. Missing ones are left out."""
    found = []
    for hca in sysfs.names("class/infiniband"):
        if hcas and hca not in hcas:
            continue
        for port in sysfs.names("class/infiniband", hca, "ports"):
            if port.isdigit():
                at = ("class/infiniband", hca, "ports", port)
                values = {
                    name: value
                    for folder in ("hw_counters", "counters")
                    for name in sysfs.names(*at, folder)
                    if (value := sysfs.number(*at, folder, name)) is not None
                }
                guid = sysfs.read("class/infiniband", hca, "node_guid")
                found.append(PortCounters(hca, int(port), guid or None, values))
    return found


@dataclass(frozen=True, slots=True)
class PortDelta:
    """What a port moved between two readings, in bytes or packets; None: unknown, with the reason.

    `lost` has the error counters that increased.
    """

    hca: str
    port: int
    sent_bytes: int | None = None
    received_bytes: int | None = None
    sent_packets: int | None = None
    received_packets: int | None = None
    lost: dict[str, int] = field(default_factory=dict)
    unknown: str | None = None

    @property
    def moved_bytes(self) -> int | None:
        """The larger direction; None if one of them is unknown."""
        known = self.sent_bytes is not None and self.received_bytes is not None
        return max(self.sent_bytes or 0, self.received_bytes or 0) if known else None

    @property
    def moved_packets(self) -> int | None:
        """The larger direction; None if one of them is unknown."""
        known = self.sent_packets is not None and self.received_packets is not None
        return max(self.sent_packets or 0, self.received_packets or 0) if known else None


def deltas(before: t.Sequence[PortCounters], after: t.Sequence[PortCounters]) -> list[PortDelta]:
    """Compare two readings of a node, port by port. A port that only one of them has is unknown."""
    old = {(reading.hca, reading.port): reading for reading in before}
    new = {(reading.hca, reading.port): reading for reading in after}
    return [_delta(key, old.get(key), new.get(key)) for key in sorted(old | new)]


def lost(before: t.Sequence[PortCounters], after: t.Sequence[PortCounters]) -> dict[str, int]:
    """Return the increase of each error counter between two readings, summed over all ports."""
    found: dict[str, int] = {}
    for delta in deltas(before, after):
        for name, count in delta.lost.items():
            found[name] = found.get(name, 0) + count
    return found


def _delta(key: tuple[str, int], before: PortCounters | None, after: PortCounters | None) -> PortDelta:
    if before is None or after is None:
        return PortDelta(*key, unknown=f"the port did not exist {'before' if before is None else 'afterwards'}")
    if before.guid != after.guid:
        return PortDelta(*key, unknown="another device now has its name")
    told = _pair(before, after, DATA)
    packets = _pair(before, after, PACKETS)
    if isinstance(told, str) and isinstance(packets, str):
        return PortDelta(*key, unknown=told)
    sent, received = (None, None) if isinstance(told, str) else told
    sent_packets, received_packets = (None, None) if isinstance(packets, str) else packets
    lost = {
        name: after.counts[name] - before.counts[name]
        for name in ERRORS
        if name in after.counts and after.counts[name] > before.counts.get(name, after.counts[name])
    }
    return PortDelta(
        *key,
        sent_bytes=None if sent is None else sent * WORD,
        received_bytes=None if received is None else received * WORD,
        sent_packets=sent_packets,
        received_packets=received_packets,
        lost=lost,
    )


def _pair(before: PortCounters, after: PortCounters, names: t.Sequence[tuple[str, str]]) -> tuple[int, int] | str:
    """Return the increase of the first pair of counters that both readings have, or why it is unknown."""
    for pair in names:
        if all(name in before.counts and name in after.counts for name in pair):
            grown = []
            for name in pair:
                old, new = before.counts[name], after.counts[name]
                if new < old:
                    # A reloaded driver, a rebooted node or a wrap: this cannot tell which.
                    return f"{name} dropped from {old} to {new}: it was reset, or it wrapped"
                if new in FULL:
                    return f"{name} is at its maximum and no longer counts"
                grown.append(new - old)
            return grown[0], grown[1]
    return f"the port does not report {', '.join(names[0])}"


def counters_of(plain: t.Any, where: str = "counters") -> list[PortCounters]:
    """Build readings from their plain form. Raises CollectionError naming the key."""
    if not isinstance(plain, (list, tuple)):
        raise CollectionError(f"{where}: a list is needed, not {type(plain).__name__}.")
    return [read_in(PortCounters, item, f"{where}[{number}]") for number, item in enumerate(plain)]
