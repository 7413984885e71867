# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan's way to argument lists: what a version cannot be told becomes a finding that blocks, not an exception."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils import values
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.arguments import Tables, build_argv, load_tables
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.rules import Finding

KEPT = 1024


@dataclass(frozen=True)
class Built:
    """argv with its program in front, or nothing where a finding of severity error says why."""

    argv: tuple[str, ...]
    env: dict[str, str]
    findings: tuple[Finding, ...]


def _finding(found: values.Finding) -> Finding:
    name = found.subject.removeprefix("settings.")
    return Finding(found.id, found.severity, (name,), f"{found.subject}: {found.message}", found.remedy, ())


class Builder:
    """`build_argv` with its tables; equal questions are answered once, since ranks and plans ask them again and again."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.kept: dict[str, Built] = {}

    def __call__(self, engine: str, version: str, settings: t.Mapping[str, t.Any]) -> Built:
        """Return argv, environment and findings."""
        key = repr((engine, version, settings))
        built = self.kept.get(key)
        if built is None:
            if len(self.kept) >= KEPT:
                self.kept.clear()
            built = self.kept[key] = self._build(engine, version, settings)
        return built

    def _build(self, engine: str, version: str, settings: t.Mapping[str, t.Any]) -> Built:
        try:
            said = build_argv(engine, version, settings, self.tables)
        except FabricError as exc:
            findings = tuple(map(_finding, exc.findings))
            return Built((), {}, findings or (Finding("arguments.version", "error", (), str(exc), "", ()),))
        return Built((*said.program, *said.argv), said.env, tuple(map(_finding, said.findings)))


@functools.lru_cache(maxsize=8)
def _builder(overlays: tuple[str, ...]) -> Builder:
    return Builder(load_tables(overlays))


def builder(overlays: t.Sequence[str] = ()) -> Builder:
    """Return the builder on the shipped tables with the owner's laid over them."""
    return _builder(tuple(map(str, overlays)))
