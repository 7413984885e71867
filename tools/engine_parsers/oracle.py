"""Ask the real parser of an engine version, and its own validation, what they make of an argument list.

`ask` runs cases in a bare child process (one for each version and environment; a fork for each case) on a pretended GB10 and
returns whether they were accepted, by which stage refused and why, and what the engine resolved. Answers are kept by
content: wheel, packages, harness, arguments, environment and model files.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.engine_parser import reader
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from engine_parsers.sources import Source, cache, packages, source

Files = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Case:
    """One argument list. `models` maps the names in it to model files (`config.json` …), which stand for the download."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, Files] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What the engine said. `stage` is where it stopped: `parse`, a later check's name, or `done`."""

    accepted: bool
    stage: str
    reason: str | None
    resolved: dict[str, Any]
    log: tuple[str, ...] = ()
    where: tuple[str, ...] = ()


@functools.cache
def _harness() -> str:
    files = [*sorted(reader.HERE.glob("*.py")), pathlib.Path(__file__)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _model(files: Files) -> pathlib.Path:
    text = json.dumps(files, sort_keys=True)
    folder = cache() / "models" / hashlib.sha256(text.encode()).hexdigest()[:16]
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1), encoding="utf-8")
    return folder


def _local(case: Case) -> list[str]:
    """Put the models' folders where the argument list has their names, inside JSON values too."""
    argv = list(case.argv)
    for name, files in case.models.items():
        folder = str(_model(files))
        argv = [folder if word == name else word.replace(json.dumps(name), json.dumps(folder)) for word in argv]
    return argv


def read(engine: Source) -> dict[str, Any]:
    """Return the real parser's flags, and what else a table has."""
    probe = knowledge.get("probes", "dense")["config"]
    return reader.read(engine.engine, engine.folder, packages(engine), engine.requires, probe)


def ask(engine: str, version: str, cases: Sequence[Case]) -> list[Answer]:
    """Answer all cases, in order. NotAvailable when a package cannot be downloaded, RuntimeError when the harness is broken."""
    made = source(engine, version)
    base = (made.sha256, packages(made).name, _harness(), reader.TOTAL_GIB, reader.FREE_GIB)
    answers: dict[int, Answer] = {}
    open_cases: dict[tuple[tuple[str, str], ...], list[tuple[int, pathlib.Path]]] = {}
    for index, case in enumerate(cases):
        key = hashlib.sha256(json.dumps([base, asdict(case)], sort_keys=True).encode()).hexdigest()
        kept = cache() / "answers" / key[:2] / f"{key}.json"
        if kept.is_file():
            answers[index] = _answer(json.loads(kept.read_text(encoding="utf-8")))
        else:
            open_cases.setdefault(tuple(sorted(case.env.items())), []).append((index, kept))
    for environment, asked in open_cases.items():
        argvs = [_local(cases[index]) for index, _kept in asked]
        said = reader.child(
            made.engine, made.folder, packages(made), made.requires, argvs, environment=dict(environment)
        )["answers"]
        for (index, kept), answer in zip(asked, said, strict=True):
            answers[index] = _answer(answer)
            if answer["stage"] != "harness":
                kept.parent.mkdir(parents=True, exist_ok=True)
                part = kept.with_suffix(f".{os.getpid()}")
                part.write_text(json.dumps(answer), encoding="utf-8")
                part.replace(kept)
    return [answers[index] for index in range(len(cases))]


def _answer(plain: Mapping[str, Any]) -> Answer:
    return Answer(
        plain["accepted"], plain["stage"], plain["reason"], plain["resolved"],
        tuple(plain.get("log", ())), tuple(plain.get("where", ())),
    )  # fmt: skip
