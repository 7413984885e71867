# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The topologies of a fabric, each as one value: how many hosts it joins, by what, and what follows from that."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Topology:
    """One topology.

    least, most: hosts that it joins (most: None is any number). by: what joins them: nothing, one switch, cables between like
    ports of two hosts, or a cable from each host to the next and from the last to the first. joins: for the guide.
    """

    name: str
    least: int
    most: int | None
    by: t.Literal["nothing", "switch", "like ports", "circle"]
    joins: str

    @property
    def cables(self) -> bool:
        """Whether cables lead from node to node, so that an owner may name them."""
        return self.by in ("like ports", "circle")

    @property
    def neighbours(self) -> bool:
        """Whether a host's cables lead to different hosts: no VF reaches all ranks, and NCCL needs another network to start."""
        return self.by == "circle"

    @property
    def some_apart(self) -> bool:
        """Whether there may be hosts that share no segment."""
        return self.by == "circle" and (self.most or 4) > 3

    @property
    def hosts(self) -> str:
        """How many hosts it joins, in words."""
        return f"{self.least}" if self.least == self.most else f"at least {self.least}"

    def takes(self, hosts: int) -> bool:
        """Whether it joins this many hosts."""
        return self.least <= hosts and (self.most is None or hosts <= self.most)


# In the order in which `discover` takes them: of those by cables that join the hosts, the first.
TOPOLOGIES: dict[str, Topology] = {
    each.name: each
    for each in (
        Topology("single", 1, 1, "nothing", "none: there is no fabric to build, and the plan says so"),
        Topology(
            "direct", 2, 2, "like ports",
            "a cable for each port in use, between like ports: ``cable1`` joins the ports 0, ``cable2`` the ports 1",
        ),
        Topology("triangle", 3, 3, "circle", "a ring of three, in which all are neighbours"),
        Topology(
            "ring", 3, None, "circle",
            "port 1 of each host to port 0 of the next, the last to the first: ``cable1`` starts at the first host. Hosts that share no "
            'cable cannot reach each other; "every pair" means every pair that shares one',
        ),
        Topology("switch", 1, None, "switch", "all ports in use on one segment, ``switch``"),
    )
}  # fmt: skip


def cabled(hosts: int) -> Topology:
    """Return the topology of this many hosts, at least two, that are joined by cables."""
    return next(each for each in TOPOLOGIES.values() if each.cables and each.takes(hosts))
