# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules as data: JMESPath conditions, compiled once, over the plan's facts."""

from __future__ import annotations

import functools
import re
import typing as t
from dataclasses import dataclass

try:
    import jmespath
except ImportError as exc:
    jmespath = None
    JMESPATH_ERROR: ImportError | None = exc
else:
    JMESPATH_ERROR = None

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import FabricError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import conditions
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.versions import matches

KIND = "rules"
Severity = t.Literal["error", "warning", "info"]
_FACT = re.compile(r"\{([a-z_]+(?:\.[a-z0-9_]+)+)\}")


@dataclass(frozen=True)
class Source:
    """Where a rule comes from. rows_of: the model whose measured rows it is, else None."""

    text: str
    rows_of: str | None = None


@dataclass(frozen=True, eq=False)
class Rule:
    """One rule with its compiled condition. engines: engine → version range; empty: all engines."""

    id: str
    severity: Severity
    names: tuple[str, ...]
    message: str
    remedy: str
    sources: tuple[Source, ...]
    condition: conditions.Condition
    engines: t.Mapping[str, str]
    origin: str = ""

    @property
    def where(self) -> str:
        """Name the rule in an error."""
        return f"{self.origin}: rule {self.id!r}"

    def concerns(self, engine: str, version: str) -> bool:
        """Whether the rule speaks of this engine and version at all."""
        return not self.engines or (engine in self.engines and matches(version, self.engines[engine]))


@dataclass(frozen=True)
class Finding:
    """What a rule has to say of a plan."""

    rule: str
    severity: Severity
    names: tuple[str, ...]
    message: str
    remedy: str
    source: tuple[str, ...]


def _slips(node: t.Any) -> bool:
    """Whether a parsed condition has `!a.b`, which JMESPath for Python reads as `(!a).b`: never what is meant."""
    if not isinstance(node, dict):
        return False
    children = node.get("children", [])
    if node.get("type") == "subexpression" and children[0].get("type") == "not_expression":
        return True
    return any(_slips(child) for child in children)


def compiled(text: str, where: str) -> conditions.Condition:
    """Compile a condition; KnowledgeError begins with `where` and says what is wrong with it."""
    if jmespath is None:
        raise FabricError(
            f"The Python package jmespath is missing on the controller ({JMESPATH_ERROR}). "
            "Install it: pip install 'jmespath>=1.0'"
        )
    try:
        parsed = jmespath.compile(text).parsed
    except jmespath.exceptions.JMESPathError as exc:
        said = " ".join(str(exc).split())
        raise knowledge.KnowledgeError(f"{where}: when: {said}. See https://jmespath.org.") from exc
    if _slips(parsed):
        raise knowledge.KnowledgeError(f"{where}: when: write !(a.b) for !a.b, which means (!a).b in JMESPath.")
    return conditions.compiled(parsed)


class Conditional(t.Protocol):
    """What has a compiled condition, and a name for errors."""

    @property
    def condition(self) -> conditions.Condition | None:
        """As `compiled` returns it."""

    @property
    def where(self) -> str:
        """File and id."""


def holds(asked: Conditional, facts: t.Mapping[str, t.Any]) -> bool:
    """Whether a condition holds, or none is set; FabricError where it cannot be evaluated on these facts."""
    if asked.condition is None:
        return True
    try:
        return conditions.true(asked.condition(facts))
    except (jmespath.exceptions.JMESPathError, TypeError) as exc:  # TypeError: jmespath compares 'a' < 1
        raise FabricError(f"{asked.where}: when: {' '.join(str(exc).split())}") from exc


def load_rules(overlays: t.Sequence[str] = ()) -> tuple[Rule, ...]:
    """Load and compile all rules, the owner's included; KnowledgeError names the file and rule of a bad condition."""
    rules = []
    for entry in knowledge.load(KIND, overlays).values():
        where = f"{entry['origin']}: rule {entry['id']!r}"
        for version_range in entry.get("engines", {}).values():
            matches("0.0.1", version_range)  # a bad range is refused here, with the rule's name around it
        rules.append(
            Rule(
                id=entry["id"],
                severity=entry["severity"],
                names=tuple(entry["names"]),
                message=entry["message"],
                remedy=entry["remedy"],
                sources=tuple(Source(s["from"], s.get("rows_of")) for s in entry["source"]),
                condition=compiled(entry["when"], where),
                engines=entry.get("engines", {}),
                origin=entry["origin"],
            )
        )
    return tuple(rules)


@functools.lru_cache(maxsize=64)
def concerned(rules: tuple[Rule, ...], engine: str, version: str) -> tuple[Rule, ...]:
    """Return the rules for an engine version."""
    return tuple(rule for rule in rules if rule.concerns(engine, version))


def without_rows_of(rules: t.Iterable[Rule], model: str) -> tuple[Rule, ...]:
    """Drop the rules that are known from one model's rows only: to see what the others say of that model."""
    return tuple(rule for rule in rules if not all(source.rows_of == model for source in rule.sources))


def _shown(value: t.Any) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    return "unknown" if value is None else str(value)


def _filled(text: str, facts: t.Mapping[str, t.Any]) -> str:
    def fact(match: re.Match[str]) -> str:
        value: t.Any = facts
        for key in match.group(1).split("."):
            value = value.get(key) if isinstance(value, t.Mapping) else None
        return _shown(value)

    return _FACT.sub(fact, text)


def evaluate(rules: t.Iterable[Rule], facts: t.Mapping[str, t.Any]) -> list[Finding]:
    """Return what the rules say, errors first. FabricError for a condition that cannot be evaluated on these facts."""
    found = []
    for rule in rules:
        if holds(rule, facts):
            found.append(
                Finding(
                    rule.id,
                    rule.severity,
                    rule.names,
                    _filled(rule.message, facts),
                    _filled(rule.remedy, facts),
                    tuple(source.text for source in rule.sources),
                )
            )
    order = {"error": 0, "warning": 1, "info": 2}
    return sorted(found, key=lambda f: order[f.severity])
