# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run in a bare interpreter (`python -S -E run.py REQUEST ANSWER`): load one engine's real parser and query it.

REQUEST (JSON): engine, source (only its sources), packages (real packages), versions (of stubbed packages), total_gib and
free_gib of the simulated GB10, flags (whether to return them), cases (argument lists). ANSWER (JSON): the `answers`, per
case {accepted, stage, reason, resolved, log}, and with flags the parser's `flags` and the loaded engine's `facts`. Each case
runs in a fork of the loaded engine, so none sees another's side effects. Engines log to standard output: answers go to a file.
"""

from __future__ import annotations

import enum
import importlib
import json
import logging
import os
import pathlib
import signal
import sys
import time
import traceback
import types
import typing as t
import warnings

TIMEOUT_S = 120


def plain(value: t.Any) -> t.Any:
    """Keep what JSON can represent; the rest becomes None, not a string with an object's address."""
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [plain(item) for item in value]
        return sorted(items, key=str) if isinstance(value, (set, frozenset)) else items
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, enum.Enum):
        return value.name
    names = getattr(value, "__struct_fields__", None) or getattr(type(value), "__dataclass_fields__", None)
    if names and not isinstance(value, type):
        return {name: plain(getattr(value, name, None)) for name in names}
    return None


def flags(parser: t.Any) -> list[dict[str, t.Any]]:
    """Describe every action of a parser. The type is found by trying the converter, since many are anonymous functions."""
    found = []
    for action in parser._actions:
        kind = type(action).__name__
        if kind in ("_HelpAction", "_VersionAction") or (not action.option_strings and action.dest == "help"):
            continue
        converter = action.type
        found.append(
            {
                "options": _options(parser, action),
                "dest": action.dest,
                "action": kind,
                "type": _type_of(converter),
                "default": plain(action.default),
                "choices": None if action.choices is None else [plain(choice) for choice in action.choices],
                "nargs": action.nargs,
                "const": plain(action.const),
                "required": bool(action.required),
                "new_flag": getattr(action, "new_flag", None),
                "const_value": plain(getattr(action, "const_value", None)),
                "error_message": getattr(action, "error_message", None),
                "deprecated": bool(getattr(action, "deprecated", False)),
                "help": _said(action),
            }
        )
    return found


def _options(parser: t.Any, action: t.Any) -> list[str]:
    """Return the names by which the parser finds an action: those it shows, then those it hides (vLLM 0.33.0: `--no-enable-x`)."""
    shown = list(action.option_strings)
    return [
        *shown,
        *(name for name, one in parser._option_string_actions.items() if one is action and name not in shown),
    ]


def _said(action: t.Any) -> str | None:
    """Return the help of an action that is, or may be, deprecated: it names the successor for the table."""
    old = (
        getattr(action, "new_flag", None)
        or getattr(action, "deprecated", False)
        or "Deprecated" in type(action).__name__
    )
    said = action.help if isinstance(action.help, str) else ""
    return said if old or "deprecated" in said.lower() else None


def _type_of(converter: t.Any) -> str:
    if converter is None:
        return "str"
    direct: dict[t.Any, str] = {str: "str", int: "int", float: "float", bool: "bool"}
    if converter in direct:
        return direct[converter]
    answers: dict[str, t.Any] = {}
    for sample in ("17", "1.5", "17K", "true", '{"a": 1}', "{}", "[1]", "word"):
        try:
            answers[sample] = converter(sample)
        except BaseException:
            continue
    whole, part = answers.get("17"), answers.get("1.5")
    if isinstance(answers.get("true"), bool):
        return "json" if isinstance(answers.get('{"a": 1}'), dict) else "bool"
    if isinstance(answers.get('{"a": 1}'), dict) or isinstance(answers.get("[1]"), list):
        return "json"
    if isinstance(whole, int) and "word" not in answers:
        return "int"
    if isinstance(part, float) and "word" not in answers:
        return "float"
    if not isinstance(answers.get("{}", ""), str) and "word" not in answers:
        return "json"  # a converter that builds its own object from JSON
    return "str"


def ask(engine: t.Any, argv: list[str]) -> dict[str, t.Any]:
    """Run one argument list through parser and validation."""
    log: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.WARNING or "promot" in record.getMessage():
                log.append(f"{record.levelname}: {record.getMessage()}")

    for logger in (logging.getLogger(), logging.getLogger("vllm")):
        logger.addHandler(Keep())
    logging.getLogger().setLevel(logging.INFO)
    stage = ["parse"]
    answer: dict[str, t.Any] = {"accepted": True, "reason": None, "resolved": {}}
    try:
        answer["resolved"] = plain(engine.validate(argv, stage))
    except BaseException as exc:
        if isinstance(exc, KeyboardInterrupt):
            raise
        kind = "" if isinstance(exc, engine.Refused) else f"{type(exc).__name__}: "
        frames = [
            f"{pathlib.Path(f.filename).name}:{f.lineno} {f.name}" for f in traceback.extract_tb(exc.__traceback__)
        ]
        answer.update(accepted=False, reason=f"{kind}{str(exc).strip()}"[:2000], where=frames[-6:])
    return {**answer, "stage": stage[0], "log": log}


def ask_in_fork(engine: t.Any, argv: list[str], place: pathlib.Path) -> t.Any:
    """Run one case in a child, so that the engine's caches and environment start fresh."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            place.write_text(json.dumps(ask(engine, argv)), encoding="utf-8")
        finally:
            os._exit(0)
    end = time.monotonic() + TIMEOUT_S
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            break
        time.sleep(0.005)
    if not place.is_file():
        return {"accepted": False, "reason": "the harness got no answer", "stage": "harness", "resolved": {}, "log": []}
    answer = json.loads(place.read_text(encoding="utf-8"))
    place.unlink()
    return answer


def pretend_memory(total_gib: float, free_gib: float) -> None:
    """Give psutil the GB10's unified memory instead of this machine's."""
    psutil: t.Any = importlib.import_module("psutil")
    gib = 1 << 30
    memory = types.SimpleNamespace(
        total=int(total_gib * gib), available=int(free_gib * gib), free=int(free_gib * gib), used=0, percent=0.0
    )
    psutil.virtual_memory = lambda: memory


def main() -> None:
    """Read the request from the first argument's file and write the answer to the second's."""
    request = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    answer = pathlib.Path(sys.argv[2])
    warnings.simplefilter("ignore")
    sys.path[1:1] = [request["source"], request["packages"]]
    sys.dont_write_bytecode = False
    stubs, fake_torch = importlib.import_module("stubs"), importlib.import_module("fake_torch")
    engine: t.Any = importlib.import_module(f"engine_{request['engine']}")
    fake_torch.real_transformers_first(stubs.anything)
    pretend_memory(request["total_gib"], request["free_gib"])
    stubs.install(request["engine"], request["versions"], engine.COMPILED)
    fake_torch.apply(request["total_gib"], request["free_gib"], stubs.anything)
    engine.prepare(request)
    engine.parser()
    # Fork first: reading its facts replaces functions of the loaded engine.
    result: dict[str, t.Any] = {
        "answers": [ask_in_fork(engine, case, answer.with_suffix(".case")) for case in request["cases"]]
    }
    if request["flags"]:
        result |= {"flags": flags(engine.parser()), "facts": plain(engine.facts())}
    answer.write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
