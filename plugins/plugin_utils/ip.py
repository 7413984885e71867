# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses and networks on the controller, parsed by netaddr. Nodes have no netaddr: module_utils use Python's ipaddress."""

from __future__ import annotations

import typing as t

try:
    import netaddr
except ImportError as exc:
    netaddr = None
    NETADDR_ERROR: ImportError | None = exc
else:
    NETADDR_ERROR = None

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

VERBOSE = netaddr and netaddr.ipv6_verbose  # all eight groups, with leading zeros


def require_netaddr() -> None:
    """Raise CollectionError with the install command if the Python package netaddr is missing."""
    if NETADDR_ERROR is not None:
        raise CollectionError(
            f"The Python package netaddr is missing on the controller ({NETADDR_ERROR}). "
            "Install it: pip install 'netaddr>=1.0'"
        )


def address(value: t.Any, version: t.Literal[4, 6] | None = None) -> t.Any:
    """Return the netaddr.IPAddress of a text; None if it is not one, or not of this version."""
    require_netaddr()
    try:
        return netaddr.IPAddress(str(value), version)
    except netaddr.AddrFormatError:
        return None


def of_number(number: int, version: t.Literal[4, 6]) -> t.Any:
    """Return the netaddr.IPAddress of a number."""
    require_netaddr()
    return netaddr.IPAddress(number, version)


def network(text: str) -> t.Any:
    """Return the netaddr.IPNetwork of `10.100.0.0/16`, or of an interface's `10.100.0.7/24`, without host bits. ValueError if it is neither."""
    require_netaddr()
    try:
        return netaddr.IPNetwork(text).cidr
    except (netaddr.AddrFormatError, ValueError) as exc:
        raise ValueError(f"{text!r} is not a network") from exc
