# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One of several models on the same nodes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Instance:
    """A served model: its name, its VF, and its unique ports."""

    name: str = "default"
    vf_index: int = 0
    port: int = 30000
    dist_port: int = 50000

    @property
    def meeting(self) -> str:
        """Return the first rank's DNS name within its namespace: the rendezvous address if no VF connects all ranks."""
        return f"serve-{self.name}-rank0-0.serve-{self.name}-ranks"
