# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One of several models on the same nodes."""

from __future__ import annotations

from dataclasses import dataclass


def dist_port_of(supervisor_port: int) -> int:
    """Return the dist_port of an instance whose supervisors have this port."""
    return supervisor_port + 1


@dataclass(frozen=True)
class Instance:
    """A served model: its name, its VF, and its unique ports."""

    name: str = "default"
    vf_index: int = 0
    port: int = 30000
    dist_port: int = 50000

    # Engines count up from dist_port for their own ports; ours are below it.
    @property
    def supervisor_port(self) -> int:
        """Return the port of the ranks' supervisors."""
        return self.dist_port - 1

    @property
    def inner_port(self) -> int:
        """Return the API's port on loopback, where a program in front of it answers on `port`."""
        return self.dist_port - 2

    @property
    def rendezvous(self) -> str:
        """Return the first rank's DNS name within its namespace: the rendezvous address if no VF connects all ranks."""
        return f"serve-{self.name}-rank0-0.serve-{self.name}-ranks"
