# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan's arithmetic on IPv4 networks, the pool's subnets and VF MACs."""

from __future__ import annotations

import bisect
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import ip

_CIDR = re.compile(r"^\d{1,3}(\.\d{1,3}){3}/\d{1,2}$")
_ADDRESS = re.compile(r"^\d{1,3}(\.\d{1,3}){3}$")


@dataclass(frozen=True, slots=True)
class Network:
    """An IPv4 network as the numbers of its first and last address."""

    first: int
    last: int
    prefix: int

    def __str__(self) -> str:
        return f"{address(self.first)}/{self.prefix}"

    @property
    def most(self) -> int:
        """The highest offset a host may have: the one before the broadcast address."""
        return self.last - self.first - 1

    def overlaps(self, other: Network) -> bool:
        """Whether the two have an address in common."""
        return self.first <= other.last and other.first <= self.last


def address(number: int) -> str:
    """Return the dotted form of an address."""
    return str(ip.of_number(number, 4))


def parse_network(text: str) -> Network:
    """Parse `10.100.0.0/16`. Raises ValueError that says what is wrong."""
    network = parse_interface(text)
    if not text.startswith(f"{address(network.first)}/"):
        raise ValueError(f"has host bits set: the network is {network}")
    return network


def ipv6_network(value: t.Any) -> bool:
    """Whether a value is an IPv6 network. The fabric is IPv4 only, so it cannot overlap one."""
    if not isinstance(value, str) or "/" not in value:
        return False
    try:
        network = ip.network(value)
    except ValueError:
        return False
    return bool(network.version == 6 and network.ip == ip.address(value.partition("/")[0]))


def parse_interface(text: str) -> Network:
    """Return the network of an interface's `10.100.0.7/24`. Raises ValueError that says what is wrong."""
    if not _CIDR.match(text):
        raise ValueError("is not an IPv4 network such as 10.100.0.0/16")
    try:
        network = ip.network(text)
    except ValueError as exc:
        raise ValueError("is not an IPv4 network: an octet or the prefix is out of range") from exc
    return Network(network.first, network.last, network.prefixlen)


def parse_host(text: str | None) -> Network | None:
    """Return a single address as a /32 network; None for a host name, an IPv6 address or None, which do not matter here."""
    found = ip.address(text, 4) if text is not None and _ADDRESS.match(text) else None
    return Network(int(found), int(found), 32) if found is not None else None


def unusable(network: Network) -> str | None:
    """Return why hosts cannot use addresses of this network, or None if they can."""
    for text, why in (
        ("0.0.0.0/8", "no host's"),
        ("127.0.0.0/8", "the loopback's"),
        ("169.254.0.0/16", "link-local"),
        ("224.0.0.0/4", "for multicast"),
        ("240.0.0.0/4", "reserved"),
    ):
        if network.overlaps(parse_network(text)):
            return f"{text} is {why}"
    return None


def carve(pool: Network, prefix: int, number: int) -> Network | None:
    """Return subnet `number` (from 0) of the pool, or None past its end."""
    size = 1 << (32 - prefix)
    first = pool.first + number * size
    return Network(first, first + size - 1, prefix) if first + size - 1 <= pool.last else None


def mac(prefix: str, index: int, port: int, function: int, vf: int) -> str:
    """Return a VF's MAC: the prefix, two octets for the host's index, one for the slot, one for the VF."""
    return f"{prefix}:{index >> 8:02x}:{index & 0xFF:02x}:{port << 4 | function:02x}:{vf:02x}"


K = t.TypeVar("K")


class Overlaps(t.Generic[K]):
    """Finds the networks that overlap a given one, by bisection: a ring of many nodes has thousands of subnets."""

    def __init__(self, networks: t.Iterable[tuple[Network, K]]) -> None:
        self._sorted = sorted(networks, key=lambda item: (item[0].first, item[0].last))
        self._firsts = [network.first for network, _key in self._sorted]

    def among_themselves(self) -> list[tuple[K, K]]:
        """Return the pairs that overlap, each network with the one before it that reaches furthest."""
        found = []
        widest = 0
        for i in range(1, len(self._sorted)):
            if self._sorted[i][0].first <= self._sorted[widest][0].last:
                found.append((self._sorted[widest][1], self._sorted[i][1]))
            if self._sorted[i][0].last > self._sorted[widest][0].last:
                widest = i
        return found

    def of(self, network: Network) -> list[K]:
        """Return the keys of the networks that overlap `network`, provided that they do not overlap each other."""
        end = bisect.bisect_right(self._firsts, network.last)
        found = []
        while end > 0 and self._sorted[end - 1][0].last >= network.first:
            end -= 1
            found.append(self._sorted[end][1])
        return found[::-1]
