"""The model classes of a vLLM release, read from the syntax of their source: nothing is imported.

An architecture is looked up in the registry (`vllm/model_executor/models/registry.py`) by its own name, then with another
ending (`_SUFFIX_TO_DEFAULTS`). If the registry has neither, it falls to the Transformers backend, provided that transformers
has a class of that name whose attention can be replaced.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

REGISTRY = "vllm/model_executor/models/registry.py"
CONFIG = "vllm/config/model.py"
CONFIGURATIONS = "vllm/transformers_utils/config.py"
HOME = "vllm.model_executor.models"
INTERFACE, PARAMETER = "SupportsPP", "intermediate_tensors"
STATES = "supports_mamba_prefix_caching"
Class = tuple[str, str]
# A module's platform checks at import time, answered for CUDA.
CUDA = {"TYPE_CHECKING": True, "is_cuda": True, "is_cuda_alike": True}


def _assigned(tree: ast.Module, name: str) -> ast.expr:
    """Return the value that a module assigns to a name."""
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            assert isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None
            return node.value
    raise RuntimeError(f"vLLM's {name} is not where it was: the engine's code has moved")


def registered(folder: Path) -> dict[str, Class]:
    """Return the registry: each architecture's module and class."""
    tree = ast.parse((folder / REGISTRY).read_text(encoding="utf-8"))

    def held(name: str) -> dict[str, Class]:
        listed = _assigned(tree, name)
        found: dict[str, Class] = {}
        if not isinstance(listed, ast.Dict):
            raise RuntimeError(f"{folder}: {name} is no dictionary any more: {ast.unparse(listed)[:80]}")
        for key, value in zip(listed.keys, listed.values, strict=True):
            if key is None and isinstance(value, ast.Name):
                found |= held(value.id)
            elif key is not None:
                module, own = ast.literal_eval(value)
                found[ast.literal_eval(key)] = (module if module.startswith("vllm.") else f"{HOME}.{module}", own)
            elif not isinstance(value, ast.DictComp):  # a subset of another dictionary, which is complete elsewhere
                raise RuntimeError(f"{folder}: {name} holds {ast.unparse(value)[:80]}")
        return found

    return held("_VLLM_MODELS")


def endings(folder: Path) -> list[str]:
    """Return the interchangeable endings of architecture names."""
    tree = ast.parse((folder / CONFIG).read_text(encoding="utf-8"))
    return [suffix for suffix, _defaults in ast.literal_eval(_assigned(tree, "_SUFFIX_TO_DEFAULTS"))]


def serves(architecture: str, known: Iterable[str], suffixes: Iterable[str]) -> str | None:
    """Return the name under which the registry has an architecture (`_normalize_arch`), or None."""
    known, suffixes = set(known), list(suffixes)
    if architecture in known:
        return architecture
    own = next((suffix for suffix in suffixes if architecture.endswith(suffix)), None)
    if own is None:
        return None
    return next((name for other in suffixes if (name := architecture.replace(own, other)) in known), None)


@dataclass
class _Module:
    """One module: its classes, and the module and name behind each of its names."""

    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    names: dict[str, Class] = field(default_factory=dict)


def _holds(test: ast.expr) -> bool | None:
    """Whether a platform condition holds on CUDA; None if it asks something else."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _holds(test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        said = [_holds(value) for value in test.values]
        wins = isinstance(test.op, ast.Or)
        return wins if wins in said else None if None in said else not wins
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute) and test.func.attr.startswith("is_"):
        return CUDA.get(test.func.attr, False)
    return CUDA.get(test.id) if isinstance(test, ast.Name) else None


def _top(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Iterate over the statements that run on CUDA when a module is imported."""
    for node in body:
        if isinstance(node, ast.If):
            holds = _holds(node.test)
            yield from _top(node.body if holds is not False else [])
            yield from _top(node.orelse if holds is not True else [])
        elif isinstance(node, ast.Try):
            yield from _top(node.body)
        else:
            yield node


@dataclass
class Sources:
    """The modules of one unpacked wheel, parsed on demand."""

    folder: Path
    modules: dict[str, _Module] = field(default_factory=dict)
    shapes: dict[tuple[str, ast.ClassDef], type] = field(default_factory=dict)

    def module(self, name: str) -> _Module:
        """Return a module's classes and imports."""
        if name not in self.modules:
            self.modules[name] = self._parsed(name)
        return self.modules[name]

    def _parsed(self, name: str) -> _Module:
        place = self.folder.joinpath(*name.split("."))
        package = place.is_dir()
        path = place / "__init__.py" if package else place.with_suffix(".py")
        found = _Module()
        if not path.is_file():
            return found
        for node in _top(ast.parse(path.read_text(encoding="utf-8-sig")).body):
            if isinstance(node, ast.ClassDef):
                found.classes[node.name] = node
            elif isinstance(node, ast.ImportFrom):
                above = name.split(".")[: None if not node.level else len(name.split(".")) - node.level + package]
                source = ".".join([*(above if node.level else []), *([node.module] if node.module else [])])
                found.names |= {one.asname or one.name: (source, one.name) for one in node.names}
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
                found.names |= {one.id: (name, node.value.id) for one in node.targets if isinstance(one, ast.Name)}
        return found

    def find(self, module: str, name: str, depth: int = 9) -> tuple[str, ast.ClassDef] | None:
        """Return the class behind a module's name, following imports, and the module that defines it."""
        here = self.module(module)
        if name in here.classes:
            return module, here.classes[name]
        if name not in here.names or not depth:
            return None
        return self.find(*here.names[name], depth - 1)

    def shape(self, module: str, name: str) -> type | None:
        """Return a class with the bases of the named one; each class has STATES and whether its `forward` takes PARAMETER.

        A factory of a base counts as that base. Python's own MRO then finds the nearest `forward`.
        """
        found = self.find(module, name)
        if found and found not in self.shapes:
            home, node = found
            bases: list[type] = []
            for base in node.bases:
                plain = base.value if isinstance(base, ast.Subscript) else base
                for part in plain.args if isinstance(plain, ast.Call) else [plain]:
                    named = isinstance(part, ast.Name) and part.id != node.name
                    if named and (one := self.shape(home, part.id)) and one not in bases:
                        bases.append(one)
            takes = _takes(node)
            says = {STATES: True} if _states(node) else {}
            self.shapes[found] = type(node.name, tuple(bases), says if takes is None else {**says, "takes": takes})
        return self.shapes[found] if found else None


def _takes(node: ast.ClassDef) -> bool | None:
    """Whether a class's own `forward` takes the previous stage's output; None if it has no `forward`."""
    for own in node.body:
        if isinstance(own, ast.FunctionDef) and own.name == "forward":
            named = {arg.arg for arg in (*own.args.args, *own.args.kwonlyargs)}
            return PARAMETER in named or own.args.kwarg is not None
    return None


def _states(node: ast.ClassDef) -> bool:
    """Whether a class itself declares that prefix caching can keep its states at every block."""
    return any(
        isinstance(own, ast.AnnAssign)
        and isinstance(own.target, ast.Name)
        and own.target.id == STATES
        and isinstance(own.value, ast.Constant)
        and own.value.value is True
        for own in node.body
    )


def classes(folder: Path) -> dict[str, set[str]]:
    """Return each registered architecture's abilities, as `supports_pp` and `supports_mamba_prefix_caching` test them."""
    sources = Sources(folder)
    able: dict[str, set[str]] = {}
    lost = []
    for architecture, (module, name) in registered(folder).items():
        shape = sources.shape(module, name)
        if shape is None:
            lost.append(f"{architecture} ({module}.{name})")
        staged = any(one.__name__ == INTERFACE for one in (shape.__mro__ if shape else ()))
        able[architecture] = {"pipeline"} if staged and getattr(shape, "takes", False) else set()
        able[architecture] |= {"states_all"} if getattr(shape, STATES, False) else set()
    if lost or not any(able.values()):
        raise RuntimeError(
            f"{folder}: no model class is found of {', '.join(lost) or 'any stage'}: the engine's code has moved"
        )
    return able


def bounded(requirement: str) -> bool:
    """Whether a requirement has an upper bound, so that all versions it allows exist today."""
    return any(part.startswith(("<", "==")) and "*" not in part for part in requirement.split(","))


def backed(folder: Path, packages: Path, wanted: Iterable[str]) -> set[str]:
    """Return which of the wanted architectures a release's Transformers backend takes.

    packages: the folder with a transformers. Its attention can be replaced if its class says so, or, for a release that
    checks that, if its module looks the attention up.
    """
    looks = "_can_set_attn_implementation" in (folder / REGISTRY).read_text(encoding="utf-8")
    wanted, found = set(wanted), set[str]()
    for path in sorted((packages / "transformers" / "models").glob("*/modeling_*.py")):
        text = path.read_text(encoding="utf-8")
        offered = re.search(r"^__all__ = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)
        listed = wanted & set(re.findall(r'"(\w+)"', offered[1])) if offered else set()
        if not listed:
            continue
        own = re.search(r"^class \w*Attention\w*\(nn\.Module\):", text, re.MULTILINE)
        if looks and (not own or "ALL_ATTENTION_FUNCTIONS.get_interface(" in text):
            found |= listed
            continue
        tree = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
        found |= {name for name in listed if _says(tree, name)}
    return found


def model_types(packages: Path) -> dict[str, set[str]]:
    """Return the model types (config.json) of each architecture in a transformers."""
    text = (packages / "transformers" / "models" / "auto" / "modeling_auto.py").read_text(encoding="utf-8")
    found: dict[str, set[str]] = {}
    for kind, architecture in re.findall(r'^ +\("([\w-]+)", "(\w+)"\),$', text, re.MULTILINE):
        found.setdefault(architecture, set()).add(kind)
    if len(found) < 100:
        raise RuntimeError(
            f"{packages}: only {len(found)} architectures have a model type: transformers' code has moved"
        )
    return found


def configured(folder: Path, packages: Path) -> set[str]:
    """Return the model types whose configuration a vLLM release or a transformers knows."""
    tree = ast.parse((folder / CONFIGURATIONS).read_text(encoding="utf-8"))
    own = _assigned(tree, "_CONFIG_REGISTRY")
    if not isinstance(own, ast.Call) or not own.keywords:
        raise RuntimeError(f"{folder}: _CONFIG_REGISTRY is not a list of names any more: {ast.unparse(own)[:80]}")
    known = {word.arg for word in own.keywords if word.arg}
    for path in sorted((packages / "transformers" / "models" / "auto").glob("*.py")):
        known |= set(re.findall(r'^ +\("([\w-]+)", "\w+Config"\),$', path.read_text(encoding="utf-8"), re.MULTILINE))
    return known


def _says(tree: dict[str, ast.ClassDef], name: str) -> bool:
    """Whether a transformers class, or a base of it in its module, sets `_supports_attention_backend = True`."""
    node = tree.get(name)
    if node is None:
        return False
    for own in node.body:
        if isinstance(own, ast.Assign) and ast.unparse(own.targets[0]) == "_supports_attention_backend":
            return isinstance(own.value, ast.Constant) and own.value.value is True
    return any(_says(tree, base.id) for base in node.bases if isinstance(base, ast.Name))
