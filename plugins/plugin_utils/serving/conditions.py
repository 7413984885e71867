# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JMESPath conditions as Python functions: each is made once of its parsed tree, and says what jmespath's own
interpreter says. Whatever is not one of the few kinds of node that conditions consist of is left to that interpreter."""

from __future__ import annotations

import typing as t

try:
    import jmespath.functions
    import jmespath.visitor
except ImportError:
    jmespath = None  # rules.load_rules says so, before a condition is made

Node = t.Mapping[str, t.Any]
Condition = t.Callable[[t.Any], t.Any]


def true(value: t.Any) -> bool:
    """Whether JMESPath takes a value for true: empty is false, 0 is not."""
    return value is True or not (value is None or value is False or value in ("", [], {}))


def compiled(node: Node) -> Condition:
    """Return the function of a parsed expression."""
    make = _MAKERS.get(node["type"])
    return make(node) if make else _left(node)


def _left(node: Node) -> Condition:
    visit = jmespath.visitor.TreeInterpreter().visit
    return lambda value: visit(node, value)


def _literal(node: Node) -> Condition:
    constant = node["value"]
    return lambda value: constant


def _path(keys: t.Sequence[str]) -> Condition:
    if len(keys) == 1:
        (only,) = keys

        def one(value: t.Any) -> t.Any:
            try:
                return value.get(only)
            except AttributeError:
                return None

        return one

    def several(value: t.Any) -> t.Any:
        try:
            for key in keys:
                value = value.get(key)
        except AttributeError:
            return None
        return value

    return several


def _keys(node: Node) -> list[str] | None:
    """Return the names of a.b.c, None for any other expression."""
    if node["type"] == "field":
        return [node["value"]]
    if node["type"] != "subexpression":
        return None
    parts = [_keys(child) for child in node["children"]]
    return None if None in parts else [key for part in parts for key in part or ()]


def _subexpression(node: Node) -> Condition:
    keys = _keys(node)
    return _path(keys) if keys else _left(node)


def _chain(node: Node) -> list[Condition]:
    """Return the members of a && b && c, or of a || b || c, however they nest."""
    parts: list[Condition] = []
    for child in node["children"]:
        parts += _chain(child) if child["type"] == node["type"] else [compiled(child)]
    return parts


def _and(node: Node) -> Condition:
    parts = _chain(node)

    def all_of(value: t.Any) -> t.Any:
        found = None
        for part in parts:
            found = part(value)
            if found is not True and not true(found):
                return found
        return found

    return all_of


def _or(node: Node) -> Condition:
    parts = _chain(node)

    def any_of(value: t.Any) -> t.Any:
        found = None
        for part in parts:
            found = part(value)
            if true(found):
                return found
        return found

    return any_of


def _not(node: Node) -> Condition:
    (inner,) = map(compiled, node["children"])

    def negated(value: t.Any) -> bool:
        found = inner(value)
        return not found if isinstance(found, bool) or found != 0 else False  # 0 is true in JMESPath

    return negated


def _comparator(node: Node) -> Condition:
    compare = jmespath.visitor.TreeInterpreter.COMPARATOR_FUNC[node["value"]]
    left, right = map(compiled, node["children"])
    equality = node["value"] in ("eq", "ne")
    if equality and node["children"][1]["type"] == "literal" and isinstance(node["children"][1]["value"], str):
        word, wanted = node["children"][1]["value"], node["value"] == "eq"
        return lambda value: (left(value) == word) is wanted
    if equality:
        return lambda value: compare(left(value), right(value))

    def ordered(value: t.Any) -> bool | None:
        one, other = left(value), right(value)
        return compare(one, other) if _comparable(one) and _comparable(other) else None

    return ordered


def _comparable(value: t.Any) -> bool:
    return isinstance(value, (int, float, str)) and not isinstance(value, bool)


def _list(node: Node) -> Condition:
    parts = [compiled(child) for child in node["children"]]
    if all(child["type"] == "literal" for child in node["children"]):
        constant = [child["value"] for child in node["children"]]
        return lambda value: None if value is None else constant
    return lambda value: None if value is None else [part(value) for part in parts]


def _function(node: Node) -> Condition:
    call, name = jmespath.functions.Functions().call_function, node["value"]
    if any(child["type"] == "expref" for child in node["children"]):
        return _left(node)
    parts = [compiled(child) for child in node["children"]]
    among = node["children"][0] if name == "contains" and len(parts) == 2 else {"type": ""}
    if among["type"] == "multi_select_list" and all(child["type"] == "literal" for child in among["children"]):
        constant, item = [child["value"] for child in among["children"]], parts[1]
        return lambda value: call(name, [None, item(value)]) if value is None else item(value) in constant
    return lambda value: call(name, [part(value) for part in parts])


_MAKERS: dict[str, t.Callable[[Node], Condition]] = {
    "literal": _literal,
    "field": _subexpression,
    "subexpression": _subexpression,
    "and_expression": _and,
    "or_expression": _or,
    "not_expression": _not,
    "comparator": _comparator,
    "multi_select_list": _list,
    "function_expression": _function,
}
