# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which host copies from which over the fabric, and at which addresses."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, PlannedHost

Plain = dict[str, t.Any]


@dataclass(frozen=True)
class Choices:
    """An owner's choices. source: the host that downloads (None: the first).

    vf_index: of the instance, whose VFs may be in pods. addresses: host → address for copies, instead of the fabric's.
    """

    source: str | None = None
    reserve_gib: float = 20.0
    port: int = 47110
    patience_s: float = 60.0
    vf_index: int = 0
    addresses: dict[str, str] = field(default_factory=dict)
    verify: bool = False


def order(hosts: t.Sequence[str], source: str | None, option: str) -> list[str]:
    """Return the hosts, with the one that an option names first. CollectionError if that one has no rank."""
    if source is not None and source not in hosts:
        raise CollectionError(f"{option}: {source!r} has no rank of this model. Those that have: {', '.join(hosts)}.")
    return sorted(hosts, key=lambda host: host != source)


def chain(
    holder: str,
    lacking: t.Sequence[str],
    hosts: t.Sequence[str],
    planned: t.Mapping[str, PlannedHost],
    chosen: Choices,
) -> dict[str, Plain]:
    """Return host → its link (see module_utils/transfer/relay.py). CollectionError if the fabric connects a host to no holder.

    Each host pulls from the last one that joined if they share a wire: a chain on a switch, along the cables on a ring. Other
    holders serve only where the chain does not reach.
    """
    start = list(hosts).index(holder)
    waiting = [host for host in (*hosts[start:], *hosts[:start]) if host in lacking]
    joined = [*(host for host in hosts if host != holder and host not in lacking), holder]
    parents: dict[str, tuple[str, str]] = {}
    while waiting:
        found = next(
            (
                (host, parent, way)
                for parent in reversed(joined)
                for host in waiting
                if (way := _way(parent, host, planned, chosen))
            ),
            None,
        )
        if found is None:
            raise CollectionError(
                f"{waiting[0]} and {holder} share no link of the fabric, and no other node connects them. Set up the fabric "
                "first (dgxspark.cluster.site --tags fabric), or set addresses for copies in model_weights_copy_addresses."
            )
        host, parent, address = found
        parents[host] = (parent, address)
        joined.append(host)
        waiting.remove(host)
    return {
        host: {
            "name": host,
            "port": chosen.port,
            "patience_s": chosen.patience_s,
            "parent": list(parents[host]) if host in parents else None,
            "children": [child for child, (parent, _address) in parents.items() if parent == host],
            "listen": sorted({address for parent, address in parents.values() if parent == host}),
        }
        for host in joined
        if host == holder or host in parents or any(parent == host for parent, _address in parents.values())
    }


def _way(parent: str, host: str, planned: t.Mapping[str, PlannedHost], chosen: Choices) -> str | None:
    """Return the address at which a host reaches its parent: on VFs that no pod uses, else on any others."""
    if parent in chosen.addresses:
        return chosen.addresses[parent]
    if parent not in planned or host not in planned:
        return None
    own = {vf.subnet for function in planned[host].functions for vf in function.vfs}
    shared = [vf for function in planned[parent].functions for vf in function.vfs if vf.subnet in own]
    free = [vf for vf in shared if vf.index != chosen.vf_index and vf.purpose != "serving"]
    best = sorted(free or shared, key=lambda vf: vf.purpose != "bench")
    return best[0].address if best else None
