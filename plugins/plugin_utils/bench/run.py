# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole benchmark of one server: its workloads one after the other, each at all levels, as one report."""

from __future__ import annotations

import dataclasses
import datetime
import gzip
import json
import os
import pathlib
import re
import time
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError, to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import across, report
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.client import Asked
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.guards import Limits, limits_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.load import Say, model_served
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.measure import Bench, Result, measure
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.workloads import Workload, workload_of

Plain = dict[str, t.Any]
_A_DAY_S = 86400.0  # a request's own bound is its workload's


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the owner wants measured. seed None: the workloads' own; keep_to: where answers go, compressed."""

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
    validate_certs: bool = True
    ca_path: str | None = None
    knowledge_dirs: tuple[str, ...] = ()


def run(wanted: Wanted, say: Say) -> Plain:
    """Measure; return the report. Raises FabricError for what cannot be measured at all."""
    greedy, work = _workload(wanted, "greedy"), [_workload(wanted, name) for name in wanted.workloads]
    if not work:
        raise FabricError("workloads: name one or more.")
    asked = _asked(wanted)
    asked = dataclasses.replace(asked, model=asked.model or model_served(asked))
    started = _now()
    found = [
        _measured(wanted, Bench(asked, each, greedy, wanted.levels, wanted.rounds, wanted.seconds), say)
        for each in work
    ]
    return {
        "format": report.FORMAT,
        "url": wanted.url,
        "model": asked.model,
        "started": started,
        "finished": _now(),
        "mode": wanted.mode,
        "client_share": max(level["client_share"] for workload in found for level in workload["levels"]),
        "workloads": found,
        "acceptance": None,
        "engine": {"name": None, "version": None},
        "answer": [],
    }


def _measured(wanted: Wanted, bench: Bench, say: Say) -> Plain:
    name, (limits, over) = bench.workload.name, _limits(wanted)
    results = measure(bench, limits, over, lambda text: say(f"{name}: {text}"))
    if wanted.keep_to:
        _keep(pathlib.Path(wanted.keep_to), name, results)
    return {"name": name, "levels": [report.level(result) for result in results]}


def _limits(wanted: Wanted) -> tuple[Limits, across.LoadLimits]:
    entries = knowledge.load("guards", list(wanted.knowledge_dirs))
    return limits_of(entries), across.load_limits_of(entries)


def _workload(wanted: Wanted, name: str) -> Workload:
    found = workload_of(name, knowledge.load("workloads", list(wanted.knowledge_dirs)))
    return found if wanted.seed is None else dataclasses.replace(found, seed=wanted.seed)


def _asked(wanted: Wanted) -> Asked:
    return Asked(
        name="bench",
        url=wanted.url,
        prompt="",
        max_tokens=1,
        timeout=_A_DAY_S,
        model=wanted.model,
        api_key=_key(wanted.key_file),
        validate_certs=wanted.validate_certs,
        ca_path=wanted.ca_path,
    )


def _key(path: str | None) -> str | None:
    if not path:
        return None
    try:
        key = pathlib.Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise FabricError(f"key_file: {path} cannot be read: {exc}. Check the path and its permissions.") from exc
    if not key:
        raise FabricError(f"key_file: {path} is empty. Put the server's API key there, or leave key_file out.")
    return key


def _keep(folder: pathlib.Path, name: str, results: t.Sequence[Result]) -> None:
    """Write every answer whole, one line of JSON each."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for result in results:
            path = folder / f"{re.sub(r'[^a-z0-9-]', '-', name)}-n{result.level.n}.jsonl.gz"
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as packed:
                for record in result.records:
                    packed.write((json.dumps(to_plain(record), ensure_ascii=False) + "\n").encode())
    except OSError as exc:
        raise FabricError(f"keep_to: the answers cannot be written to {folder}: {exc}.") from exc


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seldom(say: Say, every_s: float, clock: t.Callable[[], float] = time.monotonic) -> Say:
    """Return a `say` that speaks once in `every_s` seconds at most."""
    last = -every_s

    def spoken(text: str) -> None:
        nonlocal last
        if clock() - last >= every_s:
            last = clock()
            say(text)

    return spoken
