# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds a plan's argument lists: what a version does not support becomes a blocking finding, not an exception."""

from __future__ import annotations

import dataclasses
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, Finding

from .arguments import render_argv
from .settings import load_tables


class BuildArgv(t.Protocol):
    """Turns settings into the argv of an engine version: `arguments.build_argv` with its tables."""

    def __call__(self, engine: str, version: str, settings: t.Mapping[str, t.Any]) -> t.Any:
        """Return argv, env and findings."""


@dataclass(frozen=True)
class Built:
    """argv with its program in front, or nothing if an error finding says why."""

    argv: tuple[str, ...]
    env: dict[str, str]
    findings: tuple[Finding, ...]


def _named(found: Finding) -> Finding:
    name = found.subject.removeprefix("settings.")
    return dataclasses.replace(found, subject="", names=(name,), message=f"{found.subject}: {found.message}")


def builder(overlays: t.Sequence[str] = (), accept: t.Collection[str] = (), mods: t.Sequence[str] = ()) -> BuildArgv:
    """Return a builder of canonical settings for an engine version, from the shipped tables with the owner's merged in.

    accept, mods: see `arguments.render_argv`.
    """
    tables = load_tables(overlays)

    def build(engine: str, version: str, settings: t.Mapping[str, t.Any]) -> Built:
        try:
            said = render_argv(engine, version, settings, tables, accept=accept, mods=mods)
        except CollectionError as exc:
            findings = tuple(map(_named, exc.findings))
            return Built((), {}, findings or (Finding("arguments.version", "error", "", str(exc)),))
        return Built((*said.program, *said.argv), said.env, tuple(map(_named, said.findings)))

    return build
