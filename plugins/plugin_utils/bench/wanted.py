# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A benchmark's input: the owner's request, and knowledge. Plain data, so that a program without the collection's files can run it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

Entries = dict[str, dict[str, t.Any]]


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """The owner's request. seed None: the workloads' own; keep_to: folder for the answers, compressed; place: where it runs."""

    url: str
    model: str | None = None
    key_file: str | None = None
    workloads: tuple[str, ...] = ("chat",)
    levels: tuple[int, ...] = (1, 4, 8, 16)
    rounds: int = 2
    seconds: float = 120.0
    seed: int | None = None
    mode: str = "full"
    keep_to: str | None = None
    log_file: str | None = None
    api_key: str | None = None
    crosscheck: str | None = None
    crosscheck_arguments: tuple[str, ...] = ()
    depths: tuple[int, ...] = ()
    validate_certs: bool = True
    ca_path: str | None = None
    place: t.Literal["controller", "pod"] = "controller"


@dataclass(frozen=True, slots=True)
class Known:
    """The knowledge entries of these kinds, by id."""

    workloads: Entries
    guards: Entries
    metrics: Entries
    constants: Entries
