# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SGLang's parser, resolution and checks (see run.py)."""

from __future__ import annotations

import argparse
import importlib
import types
import typing as t

COMPILED = None


class Refused(Exception):
    """The parser's own refusal (argparse would print its usage and exit)."""


class Parser(argparse.ArgumentParser):
    """argparse that raises its refusal instead of exiting the process."""

    def error(self, message: str) -> t.NoReturn:  # noqa: D102
        raise Refused(message)


def prepare(request: t.Mapping[str, t.Any]) -> None:
    """Answer two queries that only real packages could."""
    dill: t.Any = importlib.import_module("dill")
    importlib.import_module("sgl_kernel")  # found by find_spec: present
    dill.dumps = lambda *args, **kwargs: b""
    dill.loads = lambda *args, **kwargs: types.SimpleNamespace()


def parser() -> Parser:
    """Build the parser of the engine's entry point."""
    made = Parser(prog="sglang")
    importlib.import_module("sglang.srt.server_args").ServerArgs.add_cli_args(made)
    if len(made._actions) < 200:
        raise RuntimeError(f"only {len(made._actions)} flags: a package that the parser is made of was stood in for")
    return made


def validate(argv: list[str], stage: list[str]) -> dict[str, t.Any]:
    """Parse, resolve and check as the server does before it loads a model; return the resolved settings."""
    ServerArgs = importlib.import_module("sglang.srt.server_args").ServerArgs
    namespace = parser().parse_args(argv)
    stage[0] = "resolve"
    args = ServerArgs.from_cli_args(namespace)
    if hasattr(args, "resolve_once"):  # since 0.5.19 the constructor resolves nothing
        args.resolve_once()
    stage[0] = "check"
    args.check_server_args()
    stage[0] = "done"
    return dict(args.resolved_dict()) if hasattr(args, "resolve_once") else dict(vars(args))


def facts() -> dict[str, t.Any]:
    """Return what only the loaded engine knows."""
    SpeculativeAlgorithm = importlib.import_module("sglang.srt.speculative.spec_info").SpeculativeAlgorithm
    names = [name for name in getattr(SpeculativeAlgorithm, "__members__", {}) if name != "NONE"]
    if hasattr(SpeculativeAlgorithm, "from_string"):  # accepts an alias too
        names.append("NEXTN")
    return {"known_values": {"speculative-algorithm": sorted(names)}, "mamba_slots": _mamba_slots()}


def _mamba_slots() -> dict[str, int]:
    """Run the engine's own function for the state slots of one request, in each case that it distinguishes."""
    ways: dict[str, tuple[bool, str | None, bool]] = {
        "radix_off": (True, None, False),
        "no_buffer": (False, None, False),
        "extra_buffer": (False, "plain", False),
        "extra_buffer_no_overlap": (False, "plain", True),
        "extra_buffer_lazy": (False, "lazy", False),
    }
    try:
        module = importlib.import_module("sglang.srt.mem_cache.kv_cache_configurator")
        owner = module.KVCacheConfigurator
    except (ImportError, AttributeError):
        module = importlib.import_module("sglang.srt.model_executor.model_runner_kv_cache_mixin")
        owner = module.ModelRunnerKVCacheMixin
    found = {}
    for name, (radix_off, buffer, no_overlap) in ways.items():
        values = {"disable_radix_cache": radix_off, "disable_overlap_schedule": no_overlap}
        args = types.SimpleNamespace(
            **values,
            enable_mamba_extra_buffer=lambda buffer=buffer: buffer is not None,
            enable_mamba_extra_buffer_lazy=lambda buffer=buffer: buffer == "lazy",
        )
        mamba = types.SimpleNamespace(
            enable_mamba_extra_buffer=buffer is not None, enable_mamba_extra_buffer_lazy=buffer == "lazy"
        )
        bags = types.SimpleNamespace(**values, mamba=mamba)
        for getter in ("get_memory", "get_schedule", "get_exec"):
            if hasattr(module, getter):
                setattr(module, getter, lambda bags=bags: bags)
        # 0.5.18 and 0.5.19 query functions that read the published configuration, which does not exist here.
        asked = {"mamba_extra_buffer_enabled": buffer is not None, "mamba_extra_buffer_lazy_enabled": buffer == "lazy"}
        for predicate, said in asked.items():
            if hasattr(module, predicate):
                setattr(module, predicate, lambda said=said: said)
        found[name] = owner._calculate_mamba_ratio(types.SimpleNamespace(server_args=args))
    return found
