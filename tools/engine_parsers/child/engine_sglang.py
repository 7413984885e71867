"""SGLang's parser, resolution and checks (see run.py)."""

from __future__ import annotations

import argparse
import types

from run import Refused

COMPILED = None


class Parser(argparse.ArgumentParser):
    """argparse that raises its refusal instead of leaving the process."""

    def error(self, message):  # noqa: D102
        raise Refused(message)


def prepare(request) -> None:
    """Answer two questions that only real packages could."""
    import dill
    import sgl_kernel  # noqa: F401  (found by find_spec: present)

    dill.dumps = lambda *args, **kwargs: b""
    dill.loads = lambda *args, **kwargs: types.SimpleNamespace()


def parser() -> Parser:
    """Build the parser of the engine's entry point."""
    from sglang.srt.server_args import ServerArgs

    made = Parser(prog="sglang")
    ServerArgs.add_cli_args(made)
    if len(made._actions) < 200:
        raise RuntimeError(f"only {len(made._actions)} flags: a package that the parser is made of was stood in for")
    return made


def validate(argv: list[str], stage: list[str]) -> dict:
    """Parse, resolve and check as the server does before it loads a model; return what was resolved."""
    from sglang.srt.server_args import ServerArgs

    namespace = parser().parse_args(argv)
    stage[0] = "resolve"
    args = ServerArgs.from_cli_args(namespace)
    if hasattr(args, "resolve_once"):  # from 0.5.19 on the constructor resolves nothing
        args.resolve_once()
    stage[0] = "check"
    args.check_server_args()
    stage[0] = "done"
    return dict(args.resolved_dict()) if hasattr(args, "resolve_once") else dict(vars(args))


def facts() -> dict:
    """Tell what only the loaded engine knows."""
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    names = [name for name in getattr(SpeculativeAlgorithm, "__members__", {}) if name != "NONE"]
    if hasattr(SpeculativeAlgorithm, "from_string"):  # takes an alias too
        names.append("NEXTN")
    return {"known_values": {"speculative-algorithm": sorted(names)}, "mamba_slots": _mamba_slots()}


def _mamba_slots() -> dict[str, int]:
    """Run the engine's own function for the state slots of one request, in each way that it distinguishes."""
    ways = {
        "radix_off": (True, None, False),
        "no_buffer": (False, None, False),
        "extra_buffer": (False, "plain", False),
        "extra_buffer_no_overlap": (False, "plain", True),
        "extra_buffer_lazy": (False, "lazy", False),
    }
    try:
        from sglang.srt.mem_cache import kv_cache_configurator as module

        owner = module.KVCacheConfigurator
    except (ImportError, AttributeError):
        from sglang.srt.model_executor import model_runner_kv_cache_mixin as module

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
        # 0.5.18 and 0.5.19 ask by functions that read the published configuration, which there is none of here.
        asked = {"mamba_extra_buffer_enabled": buffer is not None, "mamba_extra_buffer_lazy_enabled": buffer == "lazy"}
        for predicate, said in asked.items():
            if hasattr(module, predicate):
                setattr(module, predicate, lambda said=said: said)
        found[name] = owner._calculate_mamba_ratio(types.SimpleNamespace(server_args=args))
    return found
