# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers of the plan, with their sources: the only reader of `knowledge/constants`."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge


def constants(overlays: t.Sequence[str] = ()) -> t.Mapping[str, knowledge.Entry]:
    """Return all constants by id, with the owner's. Treat the entries as read-only."""
    return knowledge.shared("constants", tuple(overlays))


def constant(name: str, overlays: t.Sequence[str] = ()) -> float:
    """Return the value of a constant that is the same for every engine, in the unit that its entry states."""
    return float(constants(overlays)[name]["value"])
