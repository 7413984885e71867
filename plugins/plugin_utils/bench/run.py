# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole benchmark of one server: its workloads one after the other, each at all levels, as one report."""

from __future__ import annotations

import dataclasses
import datetime
import gzip
import json
import math
import os
import pathlib
import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import across, crosscheck, metrics, quick, report
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.client import ChatRequest
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.guards import limits_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.load import Say, Server, gone, server_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.measure import Bench, Result, measure
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.wanted import BenchRequest, Known
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.workloads import Workload, workload_of

Plain = dict[str, t.Any]
_ENGINE = ("name", "version")
_QUICK_LEVELS, _QUICK_S, _QUICK_TOKENS = (1, 4, 8, 16, 32), 20.0, 128
_MODELS = "/v1/models"
_A_DAY_S = 86400.0  # the workload sets a request's own timeout


def run(wanted: BenchRequest, known: Known, say: Say) -> Plain:
    """Run the benchmark; return the report. Raises CollectionError if nothing can be measured at all."""
    engines, constants = known.metrics, known.constants
    open_depths = wanted.mode == "arena" and not wanted.depths
    wanted = {"quick": _quick, "arena": _arena}.get(wanted.mode, lambda same: same)(wanted)
    benches = _benches(wanted, known)
    server = server_of(benches[0].request, [*(entry["version"]["path"] for entry in engines.values()), _MODELS])
    if open_depths:
        depths = crosscheck.fitting(wanted.depths, server.documents.get(_MODELS), server.model)
        wanted = dataclasses.replace(wanted, depths=depths)
    engine = metrics.engine_of(server.metrics, engines)
    beside = _beside(wanted, server.model, bool(benches[0].request.api_key))
    started, measured = _now(), []
    for place, bench in enumerate(benches, 1):
        named = dataclasses.replace(bench, request=dataclasses.replace(bench.request, model=server.model))
        results = _measured(wanted, known, named, say)
        measured.append((bench.workload.name, results))
        left = [each.workload.name for each in benches[place:]]
        if left and gone(results[-1].records):
            message = f"{results[-1].message} Nor were the workloads {', '.join(left)} tried."
            results[-1] = dataclasses.replace(results[-1], message=message)
            break
    if beside:
        say(f"{beside[0]} runs as a cross-check")
    return {
        "format": report.FORMAT,
        "from": wanted.place,
        "url": wanted.url,
        "model": server.model,
        "started": started,
        "finished": _now(),
        "mode": wanted.mode,
        "client_share": max(result.client_share for _name, results in measured for result in results),
        "workloads": [
            {"name": name, "levels": [report.level(result, _accepted([result], engine)) for result in results]}
            for name, results in measured
        ],
        "acceptance": _whole(wanted, [result for _name, results in measured for result in results], engine, engines),
        "engine": {"name": engine["id"], "version": _version(server, engine)} if engine else dict.fromkeys(_ENGINE),
        "power": None,
        "crosscheck": crosscheck.shown(beside, _A_DAY_S) if beside else None,
        "answer": _answer(measured[0][1], engine, constants) if wanted.mode == "quick" else [],
    }


def _beside(wanted: BenchRequest, model: str, has_key: bool) -> list[str]:
    if not wanted.crosscheck:
        return []
    return crosscheck.command(wanted.url, model, wanted.levels, wanted.crosscheck_arguments, has_key, wanted.depths)


def _quick(wanted: BenchRequest) -> BenchRequest:
    return dataclasses.replace(wanted, workloads=("chat",), levels=_QUICK_LEVELS, rounds=1, seconds=_QUICK_S)


def _arena(wanted: BenchRequest) -> BenchRequest:
    """Return the matrix of depth and concurrency that the community compares; our own guards look at the same levels first."""
    levels = crosscheck.ARENA_LEVELS if wanted.levels == BenchRequest("").levels else wanted.levels
    depths = wanted.depths or crosscheck.ARENA_DEPTHS
    more = (*crosscheck.ARENA_ARGUMENTS, *wanted.crosscheck_arguments)  # of two, the tool takes the last
    return dataclasses.replace(
        wanted, levels=levels, rounds=1, depths=depths, crosscheck=crosscheck.PROGRAM, crosscheck_arguments=more
    )


def works(wanted: BenchRequest, known: Known) -> list[Workload]:
    """Return the requested workloads. Raises CollectionError if one is unknown, or none is named."""
    if not wanted.workloads:
        raise CollectionError("workloads: name one or more.")
    return [_workload(wanted, known, name) for name in wanted.workloads]


def _benches(wanted: BenchRequest, known: Known) -> list[Bench]:
    asked, work = _asked(wanted), works(wanted, known)
    greedy, told = _workload(wanted, known, "greedy"), _workload(wanted, known, "known")
    unknown = [number for number, prompt in enumerate(told.prompts) if not prompt.get("expect")]
    if unknown:
        raise CollectionError(
            f"workload known: prompts.{unknown[0]}: expect is missing. Say what a right answer contains."
        )
    within_s = float(known.constants["bench.quick_time"]["value"]) if wanted.mode == "quick" else math.inf
    if wanted.mode == "quick":
        greedy, told = (dataclasses.replace(each, max_tokens=_QUICK_TOKENS // 2) for each in (greedy, told))
        work = [dataclasses.replace(each, max_tokens=_QUICK_TOKENS, cut=True) for each in work]
    how = (wanted.levels, wanted.rounds, wanted.seconds, within_s, wanted.mode == "quick")
    return [Bench(asked, each, greedy, told, *how) for each in work]


def _measured(wanted: BenchRequest, known: Known, bench: Bench, say: Say) -> list[Result]:
    name, limits, over = bench.workload.name, limits_of(known.guards), across.load_limits_of(known.guards)
    results = measure(bench, limits, over, lambda text: say(f"{name}: {text}"))
    if wanted.keep_to:
        _keep(pathlib.Path(wanted.keep_to), name, results)
    return results


def _accepted(results: t.Sequence[Result], engine: t.Mapping[str, t.Any] | None) -> metrics.Acceptance | None:
    return metrics.acceptance([result.scrapes for result in results], engine) if engine else None


def _whole(
    wanted: BenchRequest,
    results: t.Sequence[Result],
    engine: t.Mapping[str, t.Any] | None,
    engines: t.Mapping[str, t.Mapping[str, t.Any]],
) -> Plain | None:
    """Return the whole run's acceptance: from the metrics, else from the engine's log."""
    found = _accepted(results, engine)
    if found is None and wanted.log_file:
        try:
            text = pathlib.Path(wanted.log_file).read_text(encoding="utf-8", errors="replace")
        except OSError as exc:
            raise CollectionError(f"log_file: {wanted.log_file} cannot be read: {exc}.") from exc
        found = metrics.acceptance_of_log(text, engines)
    return None if found is None else t.cast(Plain, to_plain(found))


def _version(server: Server, engine: t.Mapping[str, t.Any]) -> str | None:
    said = server.documents.get(engine["version"]["path"])
    version = said.get(engine["version"]["key"]) if isinstance(said, dict) else None
    return None if version is None else str(version)


def _answer(
    results: t.Sequence[Result], engine: t.Mapping[str, t.Any] | None, constants: t.Mapping[str, t.Mapping[str, t.Any]]
) -> list[str]:
    queues = {r.level.n: metrics.waited(r.scrapes, engine) for r in results} if engine else {}
    marks = quick.Marks(*(float(constants[f"bench.{name}"]["value"]) for name in ("pace", "flat", "busy")))
    return quick.answer(results, queues, marks)


def _workload(wanted: BenchRequest, known: Known, name: str) -> Workload:
    found = workload_of(name, known.workloads)
    return found if wanted.seed is None else dataclasses.replace(found, seed=wanted.seed)


def _asked(wanted: BenchRequest) -> ChatRequest:
    return ChatRequest(
        name="bench",
        url=wanted.url,
        prompt="",
        max_tokens=1,
        timeout=_A_DAY_S,
        model=wanted.model,
        api_key=wanted.api_key or _key(wanted.key_file),
        validate_certs=wanted.validate_certs,
        ca_path=wanted.ca_path,
    )


def _key(path: str | None) -> str | None:
    if not path:
        return None
    try:
        key = pathlib.Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise CollectionError(f"key_file: {path} cannot be read: {exc}. Check the path and its permissions.") from exc
    if not key:
        raise CollectionError(f"key_file: {path} is empty. Put the server's API key there, or leave key_file out.")
    return key


def _keep(folder: pathlib.Path, name: str, results: t.Sequence[Result]) -> None:
    """Write every answer in full, one JSON line each."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for result in results:
            path = folder / f"{re.sub(r'[^a-z0-9-]', '-', name)}-n{result.level.n}.jsonl.gz"
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as packed:
                for record in result.records:
                    packed.write((json.dumps(to_plain(record), ensure_ascii=False) + "\n").encode())
    except OSError as exc:
        raise CollectionError(f"keep_to: the answers cannot be written to {folder}: {exc}.") from exc


def _now() -> str:
    # An engine's image may have Python 3.10, which lacks datetime.UTC.
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: UP017
