# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The knowledge that a benchmark needs, on the controller, where its files are: the only reader of `guards`, `metrics` and `workloads`."""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.wanted import Known
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import constants


def load(folders: t.Sequence[str] = ()) -> Known:
    """Return the shipped knowledge with the owner's folders applied."""
    return Known(
        workloads=knowledge.load("workloads", folders),
        guards=guards(folders),
        metrics=engines(folders),
        constants=dict(constants(folders)),
    )


def guards(folders: t.Sequence[str] = ()) -> dict[str, knowledge.Entry]:
    """Return when an answer is garbage, by the guard's id."""
    return knowledge.load("guards", folders)


def engines(folders: t.Sequence[str] = ()) -> dict[str, knowledge.Entry]:
    """Return what each engine's metrics are called, and how its log reports acceptance and memory, by the engine's name."""
    return knowledge.load("metrics", folders)
