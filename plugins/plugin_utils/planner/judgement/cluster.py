# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan asks of the machines that it is for. Whoever knows a cluster answers (plugin_utils/serving); else ANYWHERE does."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Finding

from ..model.memory import Free
from ..profile.profile import Profile

PORT, DIST_PORT = 30000, 50000  # of the API, and the first that the engine's ranks use among themselves


@dataclass(frozen=True)
class Machines:
    """The machines of a plan's ranks. free: of the one with the least; kernels: hosts by kernel release, as they reported it."""

    free: Free
    kernels: t.Mapping[str, t.Sequence[str]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Start:
    """How a plan's ranks find each other. head: rank 0's address for the others; environment: what the network needs, by host."""

    head: str
    environment: t.Mapping[str, t.Mapping[str, str]]
    port: int = PORT
    dist_port: int = DIST_PORT
    findings: tuple[Finding, ...] = ()


class Cluster(t.Protocol):
    """The machines that a plan is for. A remedy may ask again for more or fewer ranks."""

    @property
    def hosts(self) -> t.Sequence[str] | None:
        """Their names in the order of ranks; None: as many as a plan needs."""

    @property
    def platform(self) -> t.Mapping[str, str]:
        """The versions of nccl, kernel and driver that their owner states."""

    def machines(self, hosts: t.Sequence[str], usual: Free) -> Machines:
        """Return what these hosts have. usual: what an unmeasured one has free."""

    def start(self, profile: Profile, hosts: t.Sequence[str], workarounds: t.Mapping[str, str]) -> Start:
        """Return how ranks on these hosts find each other. workarounds: variables that known-bad versions need."""


@dataclass(frozen=True)
class Anywhere:
    """No cluster: unmeasured machines, as many as a plan needs, that reach each other by name."""

    @property
    def hosts(self) -> None:
        """As many as a plan needs."""

    @property
    def platform(self) -> t.Mapping[str, str]:
        """Nothing is stated."""
        return {}

    def machines(self, hosts: t.Sequence[str], usual: Free) -> Machines:
        """Return that nothing was measured."""
        return Machines(usual)

    def start(self, profile: Profile, hosts: t.Sequence[str], workarounds: t.Mapping[str, str]) -> Start:
        """Return the default ports."""
        return Start(hosts[0], {host: dict(workarounds) for host in hosts}, profile.port or PORT)


ANYWHERE = Anywhere()


def hosts_of(cluster: Cluster, nodes: int) -> list[str]:
    """Return the cluster's hosts, or names for as many ranks as a plan has."""
    return [f"rank{index}" for index in range(nodes)] if cluster.hosts is None else list(cluster.hosts)
