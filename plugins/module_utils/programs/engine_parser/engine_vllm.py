# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vLLM's parser and engine configuration (see run.py)."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import pathlib
import re
import sys
import types
import typing as t

COMPILED = re.compile(r"vllm\.(_C\w*|_moe_C\w*|_\w+_C|cumem_allocator|_flashmla\w*|vllm_flash_attn\._vllm\w*)$").match
PLATFORM = "vllm.platforms.cuda.CudaPlatform"
# vLLM 0.33 and later ask CUDA if NVML does not answer.
_FALLS_BACK = re.compile(r"nvmlDeviceGetMemoryInfo\(handle\)\.total\)\n\s+except ").search
SOURCE: list[pathlib.Path] = []


class Refused(Exception):
    """The parser's own refusal (argparse would print its usage and exit)."""


def _no_total_memory(platform: t.Any, device_id: int = 0) -> t.NoReturn:
    """Fail as NVML does on a GB10, which has no dedicated memory (vllm#57378): the defaults are then those of a small GPU."""
    raise RuntimeError("NVMLError_NotSupported")


def prepare(request: t.Mapping[str, t.Any]) -> None:
    """Force the CUDA platform: detecting it needs NVML."""
    SOURCE[:] = [pathlib.Path(request["source"])]
    platforms: t.Any = importlib.import_module("vllm.platforms")
    platforms.resolve_current_platform_cls_qualname = lambda: PLATFORM
    platforms._current_platform = None
    cuda = platforms.current_platform
    if not _FALLS_BACK(SOURCE[0].joinpath("vllm", "platforms", "cuda.py").read_text(encoding="utf-8")):
        type(cuda).get_device_total_memory = classmethod(_no_total_memory)
    for module in list(sys.modules.values()):  # some took the undetected platform while vllm was imported
        if getattr(module, "__name__", "").startswith("vllm.") and "current_platform" in vars(module):
            t.cast(t.Any, module).current_platform = cuda


def _cli() -> types.ModuleType:
    for place in ("common", "launchers", "openai"):  # the module moved twice
        if (SOURCE[0] / "vllm" / "entrypoints" / place / "cli_args.py").is_file():
            return importlib.import_module(f"vllm.entrypoints.{place}.cli_args")
    raise RuntimeError("vLLM's cli_args.py is in none of the places known")


def parser() -> t.Any:
    """Build the parser of `vllm serve`."""
    try:
        utils = importlib.import_module("vllm.utils.argparse_utils")
    except ImportError:
        utils = importlib.import_module("vllm.utils")

    def error(self: t.Any, message: str) -> t.NoReturn:
        raise Refused(message)

    Parser: t.Any = type("Parser", (utils.FlexibleArgumentParser,), {"error": error})

    made = _cli().make_arg_parser(Parser(prog="vllm serve"))
    if len(made._actions) < 150:
        raise RuntimeError(f"only {len(made._actions)} flags: a package that the parser is made of was stood in for")
    return made


def validate(argv: list[str], stage: list[str]) -> dict[str, t.Any]:
    """Parse, check and build the engine's configuration as `vllm serve` does; return the parts that matter to a plan."""
    namespace = parser().parse_args(argv)
    stage[0] = "validate_parsed_serve_args"
    _cli().validate_parsed_serve_args(namespace)
    if getattr(namespace, "model_tag", None):
        namespace.model = namespace.model_tag
    stage[0] = "engine_args"
    args = importlib.import_module("vllm.engine.arg_utils").AsyncEngineArgs.from_cli_args(namespace)
    stage[0] = "create_engine_config"
    _know_models_by_their_source()
    usage = importlib.import_module("vllm.usage.usage_lib").UsageContext.OPENAI_API_SERVER
    config = args.create_engine_config(usage)
    stage[0] = "done"
    parts = ("cache_config", "parallel_config", "scheduler_config", "speculative_config", "attention_config")
    return {part: _fields(getattr(config, part, None)) for part in parts} | {
        "model_config": {
            name: getattr(config.model_config, name, None)
            for name in ("max_model_len", "quantization", "architectures", "enforce_eager", "served_model_name")
        }
    }


def _fields(part: t.Any) -> dict[str, t.Any] | None:
    simple = (str, int, float, bool, type(None), list, tuple, dict)
    if part is None:
        return None
    named = {k: v.name if isinstance(v, enum.Enum) else v for k, v in vars(part).items() if k[0] != "_"}
    return {k: v for k, v in named.items() if isinstance(v, simple)}


def _know_models_by_their_source() -> None:
    """Fill vLLM's model information from the base classes in the model's source.

    vLLM itself imports the model in a separate process, which needs a real torch.
    """
    registry: t.Any = importlib.import_module("vllm.model_executor.models.registry")
    names = {field.name for field in dataclasses.fields(registry._ModelInfo)}

    def inspect_model_cls(self: t.Any) -> t.Any:
        bases = _bases(_source(self.module_name, self.class_name), self.class_name)
        known = {
            "architecture": self.class_name, "is_text_generation_model": True, "attn_type": "decoder",
            "default_seq_pooling_type": "LAST", "default_tok_pooling_type": "ALL", "default_pooling_type": "LAST",
            "supports_pp": "SupportsPP" in bases, "is_hybrid": "IsHybrid" in bases,
            "has_inner_state": bool({"HasInnerState", "IsHybrid"} & bases),
            "supports_multimodal": bool({"SupportsMultiModal"} & bases),
            "supports_mamba_prefix_caching": "SupportsMambaPrefixCaching" in bases,
            "is_attention_free": "IsAttentionFree" in bases,
        }  # fmt: skip
        return registry._ModelInfo(**{name: known.get(name, False) for name in names})

    registry._LazyRegisteredModel.inspect_model_cls = inspect_model_cls


def _source(module: str, name: str) -> str:
    """Return the file that defines a class: the module, or a file of the package, CUDA's before those of other platforms."""
    place = SOURCE[0].joinpath(*module.split("."))
    files = [place.with_suffix(".py")] if not place.is_dir() else [*place.glob("nvidia/*.py"), *place.rglob("*.py")]
    texts = [file.read_text(encoding="utf-8") for file in files]
    return next((text for text in texts if re.search(rf"^class {re.escape(name)}\b", text, re.M)), texts[0])


def _bases(source: str, name: str) -> set[str]:
    """Collect the base classes of a class, through classes of the same file."""
    found: set[str] = set()
    match = re.search(rf"^class {re.escape(name)}\((.*?)\):", source, re.S | re.M)
    for base in re.findall(r"\w+", match[1] if match else ""):
        if base not in found:
            found |= {base} | (_bases(source, base) if base != name else set())
    return found


def facts() -> dict[str, t.Any]:
    """Return the values that a later check accepts for flags where the parser takes any string."""
    return {"known_values": {flag: sorted(find()) for flag, find in KNOWN.items()}}


def _attention() -> list[str]:
    return list(importlib.import_module("vllm.v1.attention.backends.registry").AttentionBackendEnum.__members__)


def _quantization() -> list[str]:
    return list(importlib.import_module("vllm.model_executor.layers.quantization").QUANTIZATION_METHODS)


def _parsers(*places: tuple[str, str]) -> list[str]:
    for module, manager in places:
        try:
            return list(getattr(importlib.import_module(module), manager).list_registered())
        except ImportError:
            continue
    raise RuntimeError(f"none of {places} is in this vLLM")


def _literals(hint: t.Any) -> set[str]:
    found = {hint} if isinstance(hint, str) else set()
    for part in t.get_args(hint):
        found |= _literals(part)
    return found


def _speculative() -> set[str]:
    config = importlib.import_module("vllm.config.speculative").SpeculativeConfig
    return _literals(t.get_type_hints(config)["method"])


def _cache_dtypes() -> set[str]:
    return _literals(importlib.import_module("vllm.config.cache").CacheDType)


KNOWN: dict[str, t.Callable[[], t.Iterable[str]]] = {
    "attention-backend": _attention,
    "quantization": _quantization,
    "kv-cache-dtype": _cache_dtypes,
    "speculative-config.method": _speculative,
    "reasoning-parser": lambda: _parsers(("vllm.reasoning", "ReasoningParserManager")),
    "tool-call-parser": lambda: _parsers(
        ("vllm.tool_parsers", "ToolParserManager"), ("vllm.entrypoints.openai.tool_parsers", "ToolParserManager")
    ),
}
