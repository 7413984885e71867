# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules as data: JMESPath conditions over a plan's document."""

from __future__ import annotations

import dataclasses
import functools
import re
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, Finding, Severity
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge, near_names
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import matches, names_release

from .conditions import ERRORS, Condition, Document, Path, Unknown, View, compiled, failure
from .document import facts as facts_of_a_plan
from .facts import filled

KIND = "rules"
TOOL = ("quant", "tool")
# An unknown path → the unknown paths it depends on.
Because = t.Mapping[Path, t.Collection[Path]]
_FACT = re.compile(r"\{([a-z_]+(?:\.[a-z0-9_]+)+)\}")
_MILDER: dict[Severity, Severity] = {"error": "warning", "warning": "info"}


@dataclass(frozen=True)
class Source:
    """Where a rule comes from. rows_of: the model whose measured rows are the source, else None."""

    text: str
    rows_of: str | None = None
    summary: bool = False


@dataclass(frozen=True, eq=False)
class Rule:
    """One rule with its condition. engines: engine → version range; empty: all engines. fix: changes that resolve it.

    otherwise: what else its remedy names, besides settings.
    """

    id: str
    severity: Severity
    names: tuple[str, ...]
    message: str
    remedy: str
    sources: tuple[Source, ...]
    condition: Condition
    engines: t.Mapping[str, str]
    origin: str = ""
    fix: tuple[t.Mapping[str, t.Any], ...] = ()
    otherwise: str = ""

    @property
    def summary(self) -> bool:
        """Whether summaries of somebody's results are the only source."""
        return all(source.summary for source in self.sources)

    def concerns(self, engine: str, version: str) -> bool:
        """Whether the rule applies to this engine and version at all."""
        return not self.engines or (engine in self.engines and matches(version, self.engines[engine]))


@dataclass(frozen=True)
class Offer:
    """The changes that a finding's remedy names: alternatives with facts filled in, None where the plan lacks such a fact.

    before, otherwise: what the remedy says besides.
    """

    fixes: tuple[t.Mapping[str, t.Any] | None, ...]
    before: str = ""
    otherwise: str = ""


@dataclass(frozen=True)
class Ruling:
    """The rules' results. unjudged: rules that depend on facts of an unknown model. offers: by the finding's id."""

    findings: tuple[Finding, ...]
    unjudged: tuple[str, ...] = field(default_factory=tuple)
    offers: t.Mapping[str, Offer] = field(default_factory=dict)


def entries(overlays: t.Sequence[str] = ()) -> t.Mapping[str, knowledge.Entry]:
    """Return all rules by id, as they are written. Treat the entries as read-only."""
    return knowledge.shared(KIND, tuple(overlays))


def load_rules(overlays: t.Sequence[str] = ()) -> tuple[Rule, ...]:
    """Load and compile all rules, including the owner's. KnowledgeError names the file and rule of a bad condition."""
    rules = []
    for entry in knowledge.load(KIND, overlays).values():
        where = f"{entry['origin']}: rule {entry['id']!r}"
        for version_range in entry.get("engines", {}).values():
            try:
                matches("0.0.1", version_range)
            except CollectionError as exc:
                raise knowledge.KnowledgeError(f"{where}: engines: {exc}") from exc
        condition = compiled(entry["when"], where)
        _known_facts(condition, where)
        fix = entry.get("fix", [])
        rules.append(
            Rule(
                id=entry["id"],
                severity=entry["severity"],
                names=tuple(entry["names"]),
                message=entry["message"],
                remedy=entry["remedy"],
                sources=tuple(Source(s["from"], s.get("rows_of"), s.get("summary", False)) for s in entry["source"]),
                condition=condition,
                engines=entry.get("engines", {}),
                origin=entry["origin"],
                fix=tuple(fix if isinstance(fix, list) else [fix]),
                otherwise=entry.get("otherwise", ""),
            )
        )
    return tuple(rules)


def _known_facts(condition: Condition, where: str) -> None:
    """Raise KnowledgeError if a condition reads what no plan has. Below a projection, paths begin elsewhere: not judged."""
    if condition.projects:
        return
    known = facts_of_a_plan()
    for path in sorted(condition.reads):
        if path[0] not in known:
            raise _no_such_fact(path[0], known, where)
        if len(path) > 1 and known[path[0]] and path[1] not in known[path[0]]:
            raise _no_such_fact(".".join(path[:2]), [f"{path[0]}.{name}" for name in known[path[0]]], where)


def _no_such_fact(name: str, known: t.Iterable[str], where: str) -> knowledge.KnowledgeError:
    meant = near_names.meant(name, known) or f"There are: {', '.join(known)}."
    return knowledge.KnowledgeError(f"{where}: when: a plan has no fact {name!r}. {meant}")


@functools.lru_cache(maxsize=64)
def concerned(rules: tuple[Rule, ...], engine: str, version: str) -> tuple[Rule, ...]:
    """Return the rules for an engine version.

    A version that names no release counts as newer than all; errors that apply only since some release become warnings there.
    """
    found = [rule for rule in rules if rule.concerns(engine, version)]
    return tuple(found if names_release(version) else (_unsure(rule, rule.engines.get(engine, "")) for rule in found))


def _unsure(rule: Rule, since: str) -> Rule:
    if rule.severity != "error" or not since:
        return rule
    inspect = "Or have the image inspected before it is served: k8s_dgx_inspect_image."
    return dataclasses.replace(
        rule,
        severity=_MILDER[rule.severity],
        message=f"Applies to releases {since}, and this build names no release: {rule.message}",
        remedy=f"{rule.remedy} {inspect}",
        otherwise=f"{rule.otherwise} {inspect}".strip(),
    )


def _shown(value: t.Any) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    return "unknown" if value is None else str(value)


def _filled(text: str, facts: Document) -> str:
    def fact(match: re.Match[str]) -> str:
        value: t.Any = facts
        for key in match.group(1).split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return _shown(value)

    return _FACT.sub(fact, text)


def _deciding(paths: t.Iterable[Path], because: Because) -> set[str | None]:
    """Return the settings that decide unknown paths, or None for the model; the checkpoint's tool is decided by quantization."""
    found: set[str | None] = set()
    for path in paths:
        said = ("settings", "quantization") if path == TOOL else path
        if said in because:
            found |= _deciding(because[said], because)
        else:
            found.add(said[1] if said[0] == "settings" else None)
    return found


def _supposed(rule: Rule, view: View, hangs_on: t.Sequence[str]) -> Document:
    """Return the document in which each unknown setting has the values with which the rule would hold, as text."""
    settings = {}
    for name in hangs_on:
        if values := view.holding(rule.condition, ("settings", name)):
            settings[name] = " or ".join(values)
    return {**view.document, "settings": {**view.document["settings"], **settings}}


def _finding(rule: Rule, facts: Document, hangs_on: t.Sequence[str] = (), and_model: bool = False) -> Finding:
    message, remedy, severity = _filled(rule.message, facts), _filled(rule.remedy, facts), rule.severity
    if hangs_on:
        which = " and ".join(hangs_on)
        model = ", and on the model, whose facts are not known" if and_model else ""
        message = f"This depends on {which}, which only the running engine decides{model}: {message}"
        remedy = f"Set {which} in settings. {remedy}"
        severity = _MILDER[rule.severity]
    sources = tuple(source.text for source in rule.sources)
    return Finding(rule.id, severity, "", message, remedy, rule.names, sources)


def _offer(rule: Rule, facts: Document, hangs_on: t.Sequence[str] = ()) -> Offer:
    before = f"Set {' and '.join(hangs_on)} in settings. " if hangs_on else ""
    return Offer(tuple(_available(fix, facts) for fix in rule.fix), before, _filled(rule.otherwise, facts))


def _available(fix: t.Any, facts: Document) -> t.Any:
    try:
        return filled(fix, facts)
    except LookupError:
        return None


def evaluate(
    rules: t.Iterable[Rule], facts: Document, unknown: Unknown | None = None, because: Because = MappingProxyType({})
) -> Ruling:
    """Return what the rules find, in their order.

    unknown: unknown paths of the document; because: paths whose values are stated but depend on unknown ones.
    If a rule depends on an unknown setting, an error becomes a warning (a warning an info) that names the setting; if
    it depends only on the model, the rule is returned as unjudged.
    Raises CollectionError for a condition that cannot be evaluated on these facts.
    """
    found, unjudged = [], []
    offers: dict[str, Offer] = {}
    view = View(facts, unknown)
    for rule in rules:
        try:
            answer = view.holds(rule.condition)
        except ERRORS as exc:
            raise failure(f"{rule.origin}: rule {rule.id!r}", exc) from exc
        if answer:
            found.append(_finding(rule, facts))
            if rule.fix:
                offers[rule.id] = _offer(rule, facts)
        elif answer is None and rule.severity in _MILDER:
            decide = _deciding(view.hangs_on(rule.condition), because)
            if settings := sorted(filter(None, decide)):
                found.append(_finding(rule, _supposed(rule, view, settings), settings, None in decide))
                if rule.fix:
                    offers[rule.id] = _offer(rule, facts, settings)
            else:
                unjudged.append(rule.id)
    return Ruling(tuple(found), tuple(unjudged), offers)
