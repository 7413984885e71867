"""Whether a vLLM release accepts a model as one with multi-token prediction (MTP), read from its source: nothing is imported.

`SpeculativeConfig.hf_config_override` changes a draft model's model type, depending on its model type or its architecture.
Method `mtp` is refused if the result is not in `MTPModelTypes`. The function is followed statement by statement; conditions on
unknown parts of a configuration are followed both ways, so that a refusal is certain.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

SPECULATIVE = "vllm/config/speculative.py"
TYPES, OVERRIDE, CONFIG = "MTPModelTypes", "hf_config_override", "hf_config"
KIND, CLASSES = f"{CONFIG}.model_type", f"{CONFIG}.architectures"
BACKEND = (
    "transformers_mtp_overrides"  # set if the Transformers backend drafts; the function asks nothing else about it
)


class _Open:
    """A value that depends on something unknown here."""


OPEN = _Open()


@dataclass(frozen=True)
class _State:
    """The names known at one point of the function, including KIND and CLASSES."""

    names: Mapping[str, object] = field(default_factory=dict)

    def having(self, name: str, value: object) -> _State:
        return replace(self, names={**self.names, name: value})


class _Reader:
    """Follows the function from one state to all states in which it may end."""

    def __init__(self) -> None:
        self.ends: list[_State] = []

    def run(self, body: Iterable[ast.stmt], states: list[_State]) -> list[_State]:
        """Return the states after some statements; a `return` adds its state to the ends, a `raise` drops it."""
        for node in body:
            states = [after for state in states for after in self._step(node, state)]
        return states

    def _step(self, node: ast.stmt, state: _State) -> list[_State]:
        if isinstance(node, ast.If):
            holds, state = _value(node.test, state)
            taken = [] if holds is not OPEN and not holds else self.run(node.body, [state])
            return taken if holds is not OPEN and holds else taken + self.run(node.orelse, [state])
        if isinstance(node, (ast.Return, ast.Raise)):
            self.ends += [state] if isinstance(node, ast.Return) else []
            return []
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            value, state = _value(node.value, state)
            target = ast.unparse(node.targets[0])
            if target == CONFIG:  # replaced by another configuration
                return [state.having(KIND, OPEN).having(CLASSES, OPEN)]
            return [state.having(target, value)]
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            return [_updated(node.value, state)]
        if isinstance(node, (ast.For, ast.While, ast.With, ast.Try, ast.Match)):
            said = ast.unparse(node)
            if KIND in said or CLASSES in said:
                raise RuntimeError(f"vLLM's {OVERRIDE} is not what it was: {said[:80]}")
        return [state]


def _updated(call: ast.Call, state: _State) -> _State:
    """Return the state after a call: `hf_config.update({"architectures": […]})` sets other classes."""
    if ast.unparse(call.func) != f"{CONFIG}.update":
        return state
    for given in call.args:
        if not isinstance(given, ast.Dict):
            return state.having(KIND, OPEN).having(CLASSES, OPEN)
        for key, value in zip(given.keys, given.values, strict=True):
            name = f"{CONFIG}.{ast.literal_eval(key)}" if key else ""
            if name in (KIND, CLASSES):
                state = state.having(name, _value(value, state)[0])
    return state


def _value(node: ast.expr, state: _State) -> tuple[object, _State]:
    """Return an expression's value, or OPEN, and the state with the names it assigns."""
    if isinstance(node, ast.NamedExpr):
        value, state = _value(node.value, state)
        return value, state.having(node.target.id, value)
    if isinstance(node, ast.Constant):
        return node.value, state
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        held = [_value(one, state)[0] for one in node.elts]
        return (OPEN if OPEN in held else held), state
    if isinstance(node, ast.BoolOp):
        return _joined(node, state)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        value, state = _value(node.operand, state)
        return (OPEN if value is OPEN else not value), state
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, state = _value(node.left, state)
        right, state = _value(node.comparators[0], state)
        return (OPEN if OPEN in (left, right) else _compared(node.ops[0], left, right)), state
    if isinstance(node, ast.Subscript):
        held, state = _value(node.value, state)
        index = node.slice.value if isinstance(node.slice, ast.Constant) else None
        return (held[index] if isinstance(held, list) and isinstance(index, int) else OPEN), state
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "intersection":
        both = [_value(one, state)[0] for one in (node.func.value, *node.args)]
        lists = [one for one in both if isinstance(one, list)]
        return ([x for x in lists[0] if x in lists[1]] if len(lists) == len(both) == 2 else OPEN), state
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and len(node.args) > 1:
        name = f"{ast.unparse(node.args[0])}.{getattr(node.args[1], 'value', '')}"
        return state.names.get(name, OPEN), state
    return state.names.get(ast.unparse(node), OPEN), state


def _joined(node: ast.BoolOp, state: _State) -> tuple[object, _State]:
    """Return the value of `and` or `or`: one operand can decide it even if another is open."""
    wins = isinstance(node.op, ast.Or)
    found: object = not wins
    for one in node.values:
        value, state = _value(one, state)
        if value is OPEN:
            found = OPEN
        elif bool(value) is wins:
            return value, state
        elif found is not OPEN:
            found = value
    return found, state


def _compared(operator: ast.cmpop, left: object, right: object) -> object:
    if isinstance(operator, (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)):
        return (left == right) is isinstance(operator, (ast.Eq, ast.Is))
    if isinstance(operator, (ast.In, ast.NotIn)) and isinstance(right, (list, str)):
        held = left in right if isinstance(right, list) else isinstance(left, str) and left in right
        return held is isinstance(operator, ast.In)
    return OPEN


@dataclass(frozen=True)
class Drafts:
    """How one release treats a draft model's configuration. backend: its Transformers backend has its own MTP."""

    body: tuple[ast.stmt, ...]
    types: frozenset[str]
    backend: bool

    def refuses(self, architecture: str, kinds: Iterable[str]) -> bool:
        """Whether method `mtp` is refused for an architecture, with any of these model types."""
        for kind in kinds:
            reader = _Reader()
            start = _State({KIND: kind, CLASSES: [architecture], BACKEND: None})
            for end in [*reader.run(self.body, [start]), *reader.ends]:
                if end.names[KIND] is OPEN or end.names[KIND] in self.types:
                    return False
        return True


def drafts(folder: Path) -> Drafts:
    """Read an unpacked wheel."""
    tree = ast.parse((folder / SPECULATIVE).read_text(encoding="utf-8"))
    types: set[str] = set()
    body: list[ast.stmt] = []
    backend = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == TYPES:
            types = {one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant)}
        elif isinstance(node, ast.FunctionDef) and node.name == OVERRIDE:
            body, backend = node.body, BACKEND in {one.arg for one in node.args.args}
    if "mtp" not in types or not body:
        raise RuntimeError(f"{folder}: {TYPES} or {OVERRIDE} is not where it was: the engine's code has moved")
    return Drafts(tuple(body), frozenset(types), backend)
