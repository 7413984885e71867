# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# mypy: ignore-errors
# Its classes stand for anything, which types cannot express.
"""A fake torch and triton: answers what engines ask before they load anything, for one NVIDIA GB10."""

from __future__ import annotations

import importlib
import inspect
import types
import typing

GIB = 1 << 30
NAME = "NVIDIA GB10"
CAPABILITY = (12, 1)
DTYPES = {
    "float64": (8, True), "float32": (4, True), "float16": (2, True), "bfloat16": (2, True),
    "float8_e4m3fn": (1, True), "float8_e5m2": (1, True), "float8_e4m3fnuz": (1, True), "float8_e5m2fnuz": (1, True),
    "float8_e8m0fnu": (1, True), "float4_e2m1fn_x2": (1, True), "complex64": (8, False), "bool": (1, False),
    "int8": (1, False), "int16": (2, False), "int32": (4, False), "int64": (8, False),
    "uint8": (1, False), "uint16": (2, False), "uint32": (4, False), "uint64": (8, False),
}  # fmt: skip
ALIASES = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "short": "int16",
    "int": "int32",
    "long": "int64",
}


class dtype:
    """torch.dtype: a size and whether it is a float."""

    def __init__(self, name: str, itemsize: int, floating: bool) -> None:
        self.name, self.itemsize, self.is_floating_point = name, itemsize, floating

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self):
        return (_dtype, (self.name,))

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self


def _dtype(name: str) -> dtype:
    return getattr(importlib.import_module("torch"), name)


def _module(anything):
    """Return torch.nn.Module as a plain class: engines mix it with Protocol classes, which conflict with a permissive metaclass."""

    class Module:
        def __init__(self, *args, **kwargs) -> None:
            pass

        def __init_subclass__(cls, **kwargs) -> None:
            pass

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return anything(name)

    return Module


class Library:
    """torch.library.Library: keeps its namespace as a string, which engines look up again."""

    def __init__(self, ns="stub", *args, **kwargs) -> None:
        self.ns = ns

    def _nothing(self, *args, **kwargs) -> None:
        return None

    define = impl = fallback = _register_fake = _nothing


class CustomOp:
    """The result of torch.library.custom_op."""

    def __init__(self, function) -> None:
        self.function = function
        self.__name__ = getattr(function, "__name__", "op")
        self.__doc__ = None

    def __call__(self, *args, **kwargs):  # noqa: D102
        return self.function(*args, **kwargs)

    def register_fake(self, function):
        """Accept the function and do nothing with it."""
        return function

    def register_kernel(self, *args, **kwargs):
        """Return a decorator that does nothing."""
        return lambda function: function

    register_autograd = impl = register_kernel


def _infer_schema(function, **kwargs) -> str:
    """Return a schema with as many tensors as the function's annotation returns: vLLM compares the two."""
    returned = inspect.signature(function).return_annotation
    if typing.get_origin(returned) is tuple:
        count = len(typing.get_args(returned))
    else:
        count = 0 if returned in (None, "None", inspect.Signature.empty) else 1
    return f"() -> ({', '.join(['Tensor'] * count)})"


def _tensor(*args, **kwargs):
    kind = kwargs.get("dtype") or importlib.import_module("torch").float32
    return types.SimpleNamespace(element_size=lambda: kind.itemsize, dtype=kind)


def apply(total_gib: float, free_gib: float, anything) -> None:
    """Fill the fake torch and triton; call it after `stubs.install` and before importing the engine.

    anything: makes a stub class (`stubs.anything`).
    """
    torch, triton = importlib.import_module("torch"), importlib.import_module("triton")
    for part in ("backends", "cuda", "library", "mps", "nn", "nn.functional", "version", "xpu"):
        importlib.import_module(f"torch.{part}")
    properties = types.SimpleNamespace(
        name=NAME, major=CAPABILITY[0], minor=CAPABILITY[1], total_memory=int(total_gib * GIB), multi_processor_count=48,
        warp_size=32, is_integrated=True, gcnArchName="", shared_memory_per_block_optin=101376,
    )  # fmt: skip
    vars(torch.cuda).update(
        is_available=lambda: True,
        device_count=lambda: 1,
        current_device=lambda: 0,
        is_initialized=lambda: False,
        _is_compiled=lambda: True,
        get_device_name=lambda *args, **kwargs: NAME,
        get_device_capability=lambda *args, **kwargs: CAPABILITY,
        get_device_properties=lambda *args, **kwargs: properties,
        mem_get_info=lambda *args, **kwargs: (int(free_gib * GIB), int(total_gib * GIB)),
        memory_allocated=lambda *args, **kwargs: 0,
        memory_reserved=lambda *args, **kwargs: 0,
    )
    vars(torch.version).update(cuda="13.0", hip=None, musa=None, xpu=None, git_version="stub")
    for other in (torch.xpu, torch.mps):
        vars(other).update(is_available=lambda: False, device_count=lambda: 0)
    torch.backends.mps = types.SimpleNamespace(is_available=lambda: False)
    torch.lacking = frozenset({"npu", "hpu", "musa"})  # engines take the mere attribute for the device
    torch.library.Library = Library
    torch.library.infer_schema = _infer_schema
    torch.library.custom_op = lambda name, function=None, **kwargs: CustomOp(function) if function else CustomOp
    torch.nn.Module = _module(anything)
    torch.dtype = dtype
    for name, (size, floating) in DTYPES.items():
        setattr(torch, name, dtype(name, size, floating))
    for alias, name in ALIASES.items():
        setattr(torch, alias, getattr(torch, name))
    torch.tensor = torch.empty = _tensor
    target = types.SimpleNamespace(backend="cuda", arch=121, warp_size=32)
    active = types.SimpleNamespace(get_current_target=lambda: target)
    # vLLM counts the active drivers: without one it assumes that Triton is missing, and uses an older model runner.
    driver = types.SimpleNamespace(is_active=lambda: True)
    importlib.import_module("triton.backends").backends = {"nvidia": types.SimpleNamespace(driver=driver)}
    triton.runtime = types.SimpleNamespace(
        driver=types.SimpleNamespace(active=active), JITFunction=anything("JITFunction")
    )


def real_transformers_first(anything) -> None:
    """Import the installed transformers while there is no torch, so that it runs without; then relax it.

    Its placeholders for torch classes raise on use; engines subclass and subscript some of them at import.
    """
    for name in ("huggingface_hub", "transformers"):
        importlib.import_module(name)
    import_utils = importlib.import_module("transformers.utils.import_utils")
    try:
        auto_docstring = importlib.import_module("transformers.utils.auto_docstring")
    except ImportError:
        pass
    else:  # it writes class names into documentation, which a stub lacks
        auto_docstring.format_args_docstring = lambda docstring, *args, **kwargs: docstring

    def attribute(cls, key):
        try:
            return type.__getattribute__(cls, key)
        except AttributeError:
            if key.startswith("__"):
                raise
            return anything(key)

    import_utils.DummyObject.__getattribute__ = attribute
