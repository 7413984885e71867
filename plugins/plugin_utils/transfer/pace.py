# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The progress of a download or a copy, as a line for the terminal."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import GIB

_SHARE = 3  # a poll takes about a quarter of a node's time
_LONGEST = 60.0  # s: what slowed the node may be over long before
_PHASES = {"download": "downloaded", "verify": "verified", "copy": "copied", "export": "laid out", "import": "imported"}


def line(host: str, what: str, told: t.Mapping[str, t.Any]) -> str:
    """Return the line; empty if there is nothing to report. told: `phase`, `bytes` and `total` as the node wrote them."""
    phase, total = _PHASES.get(str(told.get("phase"))), int(told.get("total") or 0)
    if not phase or total <= 0:
        return ""
    done = min(int(told.get("bytes") or 0), total)
    return f"{host}: {what}: {done / GIB:.2f} of {total / GIB:.2f} GiB {phase} ({100 * done // total} %)"


def pause(interval: float, took: float) -> float:
    """Return the seconds to wait before the next poll of a node that took `took` seconds to answer this one.

    A slow node is busy, perhaps with the very work that is waited for. The pause is at most a minute (or `interval`).
    """
    return max(interval, min(_SHARE * took, _LONGEST))
