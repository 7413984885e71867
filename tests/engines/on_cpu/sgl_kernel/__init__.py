"""Stands in for SGLang's own kernels, which a machine without NVIDIA's driver cannot import: each of them refuses to run.

With this folder's parent in PYTHONPATH and SGLANG_USE_CPU_ENGINE=1, SGLang 0.5.12 serves a dense model with what its layers have in plain
PyTorch: `--device cpu --attention-backend torch_native --sampling-backend pytorch --disable-cuda-graph --disable-overlap-schedule`.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
import typing as t

__version__ = "0.4.2.post2"
CAUGHT = f"{__name__}.scalar_type"  # SGLang has its own where this cannot be imported


def __getattr__(name: str) -> t.Callable[..., t.NoReturn]:
    if name.startswith("__"):
        raise AttributeError(name)

    def absent(*_given: t.Any, **_named: t.Any) -> t.NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name} needs a GPU")

    return absent


class Part(types.ModuleType):
    """A module of it."""

    def __getattr__(self, name: str) -> t.Callable[..., t.NoReturn]:
        return __getattr__(name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds any module of it but one."""

    def find_spec(self, name: str, _path: t.Any, _target: t.Any = None) -> importlib.machinery.ModuleSpec | None:
        if name == CAUGHT:
            raise ImportError(name)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.startswith(f"{__name__}.") else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return Part(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__path__ = []


sys.meta_path.insert(0, Finder())
