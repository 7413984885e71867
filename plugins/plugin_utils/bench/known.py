# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loads the knowledge that a benchmark needs, on the controller, where its files are."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.wanted import Known


def load(folders: t.Sequence[str] = ()) -> Known:
    """Return the shipped knowledge with the owner's folders applied."""
    return Known(**{kind.name: knowledge.load(kind.name, folders) for kind in dataclasses.fields(Known)})
