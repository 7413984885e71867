# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# mypy: ignore-errors
# Its classes stand for anything, which types cannot express.
"""Stubs for the packages that an engine imports and this machine lacks (torch, triton, …).

A meta-path finder, last in the list, turns every missing top-level module into a package whose attributes are *anything*: they
can be called, used as decorator, base class, generic, context manager or number, and compare as false. The engine's own
code runs unchanged; what needs a real answer (device, dtypes) is set on the stubs by `fake_torch`.

Never stubbed: the engine, the standard library, installed packages, and `ABSENT`, whose mere presence would make an
engine detect another vendor's device.
"""

from __future__ import annotations

import abc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types

ABSENT = frozenset(
    {"torch_npu", "torch_musa", "torch_xla", "libtpu", "torch_tpu", "tpu_inference", "habana_frameworks", "aiter", "ray",
     "intel_extension_for_pytorch", "amdsmi", "mlx", "mooncake", "modelscope", "runai_model_streamer"}
)  # fmt: skip
# A probe with find_spec sees these as installed: a CUDA image has them.
PRESENT = frozenset({"torch", "triton", "flashinfer", "sgl_kernel"})
ALLOWED_DUNDERS = {"__func__": True, "__class_validators__": ()}
ANYTHING = "_stands_for_anything"


def is_anything(value: object) -> bool:
    """Whether `value` is itself a stub (a class derived from one is the engine's own)."""
    return isinstance(value, Permissive) and ANYTHING in vars(value)


def anything(name: str, module: str = "stub") -> type:
    """Make a new stub class."""

    def attribute(self: object, attr: str) -> object:
        if attr.startswith("__") and attr.endswith("__"):
            raise AttributeError(attr)
        return anything(attr, module)

    def core_schema(cls: type, source: object, handler: object) -> object:
        return importlib.import_module("pydantic_core.core_schema").any_schema()

    body = {
        ANYTHING: True,
        "__module__": module,
        "__init__": lambda self, *args, **kwargs: None,
        "__getattr__": attribute,
        "__init_subclass__": classmethod(lambda cls, **kwargs: None),
        "__get_pydantic_core_schema__": classmethod(core_schema),
    }
    return Permissive(name, (), body)


class Permissive(abc.ABCMeta):
    """The type of stubs. It derives from ABCMeta so that `class X(torch.nn.Module, ABC)` has no metaclass conflict."""

    def __new__(mcs, name, bases, body, **kwargs):  # noqa: D102
        return super().__new__(mcs, name, bases, body)

    def __init__(cls, name, bases, body, **kwargs):
        super().__init__(name, bases, body)

    def __getattr__(cls, name):
        if name.startswith("__") and name.endswith("__"):
            if ALLOWED_DUNDERS.get(name) is None:
                raise AttributeError(name)
            if name == "__class_validators__":
                return []
        value = anything(name, cls.__module__)
        type.__setattr__(cls, name, value)
        return value

    def __call__(cls, *args, **kwargs):  # noqa: D102
        if not is_anything(cls):
            try:
                return super().__call__(*args, **kwargs)
            except TypeError:
                made = object.__new__(cls)
                made.__init__(*args, **kwargs)
                return made
        decorated = (type, types.FunctionType, staticmethod, classmethod)
        if len(args) == 1 and not kwargs and isinstance(args[0], decorated) and not is_anything(args[0]):
            return args[0]  # used as a decorator
        return anything(f"{cls.__name__}()")

    def register(cls, *args, **kwargs):
        """Replace ABCMeta.register and registries used as decorators."""
        return args[0] if len(args) == 1 else None

    def _same(cls, *args):
        return cls

    def _false(cls, *args):
        return False

    def _nothing(cls, *args):
        return None

    __or__ = __ror__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _same
    __floordiv__ = __rfloordiv__ = __mod__ = __pow__ = __neg__ = __and__ = __rand__ = __invert__ = __lshift__ = _same
    __getitem__ = __enter__ = _same
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __exit__ = _false
    __setitem__ = __delitem__ = _nothing

    def __iter__(cls):
        return iter(())

    def __len__(cls):
        return 0

    def __bool__(cls):
        return True

    def __int__(cls):
        return 0

    __index__ = __int__

    def __float__(cls):
        return 0.0

    def __hash__(cls):
        return id(cls)

    def __eq__(cls, other):
        return cls is other


class StubModule(types.ModuleType):
    """A stub module; `lacking` names attributes that must not exist."""

    lacking: frozenset[str] = frozenset()

    def __getattr__(self, name):
        if (name.startswith("__") and name.endswith("__")) or name in self.lacking:
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        value = sys.modules.get(full) or anything(name, self.__name__)
        setattr(self, name, value)
        return value


class _Loader(importlib.abc.Loader):
    def __init__(self, versions):
        self.versions = versions

    def create_module(self, spec):
        module = StubModule(spec.name)
        module.__path__ = []
        module.__version__ = self.versions.get(spec.name, "99.0.0")
        module.__file__ = f"<stub {spec.name}>"
        return module

    def exec_module(self, module):
        parent, _dot, name = module.__name__.rpartition(".")
        if parent in sys.modules and name not in vars(sys.modules[parent]):
            setattr(sys.modules[parent], name, module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, engine, compiled, versions):
        self.engine = engine
        self.compiled = compiled
        self.loader = _Loader(versions)

    def find_spec(self, fullname, path=None, target=None):
        top = fullname.partition(".")[0]
        if not (self.compiled and self.compiled(fullname)):
            if top in (self.engine, "__main__") or top in sys.stdlib_module_names or top in ABSENT:
                return None
            if fullname != top and not isinstance(sys.modules.get(top), StubModule):
                return None  # a missing part of an installed package stays missing
        return importlib.machinery.ModuleSpec(fullname, self.loader, is_package=True)


def install(engine: str, versions: dict[str, str], compiled=None) -> None:
    """Stub everything missing from now on.

    engine: the top-level module that is real. versions: the versions that stubs report. compiled: matches the
    engine's own compiled modules, which an unpacked source lacks.
    """
    probe = importlib.util.find_spec

    def find_spec(name, package=None):
        try:
            spec = probe(name, package)
        except (ImportError, AttributeError, ValueError):
            return None
        if spec is not None and isinstance(spec.loader, _Loader) and name.partition(".")[0] not in PRESENT:
            return None
        return spec

    importlib.util.find_spec = find_spec
    sys.meta_path.append(_Finder(engine, compiled, versions))
