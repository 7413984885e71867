# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A mode of verify: the steps that the verdict `passed` requires. Modes are data (`knowledge/modes`)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge


@dataclass(frozen=True, slots=True)
class Mode:
    """The required steps. Other steps are judged if their results are given."""

    id: str
    title: str
    required: tuple[str, ...]


def names(knowledge_dirs: t.Sequence[str] = ()) -> tuple[str, ...]:
    """Return the names of all modes, the owner's too. Raises KnowledgeError for unreadable ones."""
    return tuple(knowledge.load("modes", knowledge_dirs))


def entry(name: str, knowledge_dirs: t.Sequence[str] = ()) -> knowledge.Entry:
    """Return the entry of a mode. KnowledgeError names those there are."""
    return knowledge.get("modes", name, knowledge_dirs)


def mode_of(entry: t.Any, known: t.Collection[str]) -> Mode:
    """Build a mode from its entry. Raises CollectionError for a step that verify does not have."""
    if not isinstance(entry, t.Mapping) or not {"id", "title", "required_steps"} <= set(entry):
        raise CollectionError("mode: an entry of the knowledge base's kind modes is needed.")
    strangers = [step for step in entry["required_steps"] if step not in known]
    if strangers:
        raise CollectionError(f"mode {entry['id']}: there is no step {strangers[0]!r}. Steps: {', '.join(known)}.")
    return Mode(entry["id"], entry["title"], tuple(entry["required_steps"]))
