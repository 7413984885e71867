# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a hardware class: the only reader of `hardware`, `health`, `memory_guard`, `thresholds` and `updates`.

Each function takes the class's name and the owner's folders, and raises KnowledgeError that lists the known classes for another name.
"""

from __future__ import annotations

import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge

Entry = knowledge.Entry


def classes(dirs: t.Sequence[str] = ()) -> t.Mapping[str, Entry]:
    """Return all hardware classes by name: their functions, ports and PCI ids."""
    return knowledge.shared("hardware", tuple(dirs))


def device(name: str, dirs: t.Sequence[str] = ()) -> Entry:
    """Return a class's functions, ports and PCI ids."""
    return knowledge.get("hardware", name, dirs)


def health(name: str, dirs: t.Sequence[str] = ()) -> Entry:
    """Return what a sound node of the class shows: limits of its memory, disks, GPU and packages."""
    return knowledge.get("health", name, dirs)


def guard(name: str, dirs: t.Sequence[str] = ()) -> Entry:
    """Return the figures of the class's memory guard, in MiB."""
    return knowledge.get("memory_guard", name, dirs)


def guard_if_any(name: str, dirs: t.Sequence[str] = ()) -> Entry | None:
    """Return the figures of the class's memory guard; None for a class without one."""
    return knowledge.shared("memory_guard", tuple(dirs)).get(name)


def thresholds(name: str, dirs: t.Sequence[str] = ()) -> Entry:
    """Return what verify requires of the class's fabric."""
    return knowledge.get("thresholds", name, dirs)


def has_thresholds(name: str, dirs: t.Sequence[str] = ()) -> bool:
    """Return whether verify can judge the class's fabric."""
    return name in knowledge.shared("thresholds", tuple(dirs))


def update_rules(name: str, dirs: t.Sequence[str] = ()) -> list[Entry]:
    """Return what keeps an update from the class's nodes, or says after it that something went wrong."""
    rules: list[Entry] = knowledge.get("updates", name, dirs)["rules"]
    return rules
