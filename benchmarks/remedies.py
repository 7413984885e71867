# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the remedies of all rules, over all profiles and variants that trip them, and count how many are refused.

Usage: remedies.py [PROFILES [RULE …]]    (how many profiles and variants at most, 0: all; beginnings of rules' ids)

For each profile, variant and rule: the rule is provoked by the values that its condition compares settings with, by other splits, and
by little free memory, until a plan has its finding. Of all findings of that plan, each change that its remedy could name is then
planned as an owner would, as an override: `written` are all of a rule's changes, `said` are those that the plan says. A change is
refused if the plan with it is blocked or cannot be made, or still has the finding. While a plan is blocked, changes of its warnings
are not said.
"""

from __future__ import annotations

import collections
import itertools
import json
import pathlib
import runpy
import sys
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[1]
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import find_profile, resolve_profile  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement import knowledge_base, rules, verdict  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import plan  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import matches  # noqa: E402

Plain = dict[str, t.Any]
HOSTS = [f"spark{number}" for number in range(1, 9)]
MOST = 24  # provocations of a rule for one variant of a profile


def compared(node: t.Any) -> t.Iterator[tuple[str, t.Any]]:
    """Yield the settings that a condition compares, and the values: literals, and their neighbours if they are numbers."""
    if not isinstance(node, dict):
        return
    children = node.get("children", [])
    names = [_setting(child) for child in children]
    literals = [child.get("value") for child in children if isinstance(child, dict) and child.get("type") == "literal"]
    for child in children:
        if isinstance(child, dict) and child.get("type") == "multi_select_list":
            names += [_setting(each) for each in child["children"]]
            literals += [each["value"] for each in child["children"] if each["type"] == "literal"]
    for name in filter(None, names):
        for value in itertools.chain.from_iterable(v if isinstance(v, list) else [v] for v in literals):
            if isinstance(value, int) and not isinstance(value, bool):
                yield from ((name, near) for near in (value - 1, value + 1) if near > 0)
            elif value not in ("", None):
                yield name, value
    if own := _setting(node):
        yield own, True
        return
    for child in children:
        yield from compared(child)


def _setting(node: t.Any) -> str:
    if isinstance(node, dict) and node.get("type") == "or_expression":
        node = node["children"][0]
    if not isinstance(node, dict) or node.get("type") != "subexpression" or len(node["children"]) != 2:
        return ""
    first, second = node["children"]
    return second["value"] if first.get("value") == "settings" and second.get("type") == "field" else ""


def provocations(rule: rules.Rule, nodes: int) -> t.Iterator[tuple[Plain, Plain]]:
    """Yield settings and splits that may trip a rule."""
    values = collections.defaultdict(list)
    for name, value in compared(rule.condition.parsed):
        if value not in values[name]:
            values[name].append(value)
    reads = {path[0] for path in rule.condition.reads}
    spreads: list[Plain] = [{}]
    if "parallel" in reads:
        spreads += [{"nodes": n, "tp": 1, "pp": n, "ep": 1} for n in (nodes, 4, 3)] + [
            {"nodes": 4, "tp": 4, "pp": 1, "ep": 4}
        ]
    shares: list[Plain] = [{}]
    if "memory" in reads:
        shares += [{"share": share} for share in (0.3, 0.97)]
    each = [[(name, value) for value in found[:4]] for name, found in values.items()]
    for spread, share in itertools.product(spreads, shares):
        for chosen in itertools.product(*each) if each else [()]:
            yield {**dict(chosen), **share}, spread


class Variant:
    """A profile's variant, and the overrides of it that were planned."""

    def __init__(self, name: str, variant: str, known: knowledge_base.Base) -> None:
        self.known, self.entry = known, find_profile(name)
        self.base: Plain = {"variant": variant} if variant else {}
        self.nodes = resolve_profile(self.entry, self.base, known.tables).nodes
        self._tripped: dict[str, frozenset[str]] = {}
        self._planned: dict[str, Plain | None] = {}

    def overrides(self, rule: rules.Rule) -> t.Iterator[Plain]:
        """Yield overrides that may trip a rule, of an engine release that it concerns."""
        engine, version = self.entry["engine"]["name"], self.entry["engine"]["version"]
        if rule.engines and engine not in rule.engines:
            return
        base = self.base
        if rule.engines and not matches(version, rule.engines[engine]):
            releases = (p.version for p in self.known.tables.versions(engine))
            release = next((each for each in releases if matches(each, rule.engines[engine])), None)
            if release is None:
                return
            base = {**base, "engine": {"version": release, "versions": "", "image": None}}
        for settings, spread in itertools.islice(provocations(rule, self.nodes), MOST):
            share = settings.pop("share", None)
            if share:
                settings["gpu_memory_utilization" if engine == "vllm" else "mem_fraction_static"] = share
            yield {**base, "settings": settings, "parallel": spread}

    def cluster(self, overrides: Plain) -> Plain:
        """Return a cluster of as many hosts as the overrides ask for."""
        return {"hosts": HOSTS[: overrides["parallel"].get("nodes", self.nodes)], "free_gib": 104.0}

    def judged(self, overrides: Plain) -> verdict.Judgement | None:
        """Judge overrides; None if they are refused."""
        try:
            chosen = resolve_profile(self.entry, overrides, self.known.tables)
            hosts = self.cluster(overrides)
            free, _seen = plan._free(hosts, hosts["hosts"], self.known)
            return verdict.judge(chosen, self.known, free=free)
        except CollectionError:
            return None

    def trips(self, overrides: Plain, rule: str) -> bool:
        """Whether overrides have the finding of a rule."""
        key = json.dumps(overrides, sort_keys=True)
        if key not in self._tripped:
            found = self.judged(overrides)
            self._tripped[key] = frozenset(f.id for f in found.findings) if found else frozenset()
        return rule in self._tripped[key]

    def planned(self, overrides: Plain) -> Plain | None:
        """Plan overrides, on as many hosts as they ask for; None if they are refused."""
        key = json.dumps(overrides, sort_keys=True)
        if key not in self._planned:
            try:
                self._planned[key] = plan.launch_plan(self.entry, self.cluster(overrides), overrides)
            except CollectionError:
                self._planned[key] = None
        return self._planned[key]

    def refused(self, overrides: Plain, change: t.Mapping[str, t.Any], rule: str) -> str:
        """Return why a plan with a change does not pass; "" if it does."""
        spread = {**overrides["parallel"], **change.get("parallel", {})}
        settings = {**overrides["settings"], **change.get("settings", {})}
        laid = {**overrides, "settings": settings, "parallel": spread}
        made = self.planned(laid) if spread.get("nodes", 1) <= len(self.cluster(overrides)["hosts"]) else None
        if made is None:
            return "it cannot be made"
        ids = [found["rule"] for found in made["findings"] if found["severity"] == "error"]
        if made["verdict"] == "blocked":
            return f"it is blocked by {', '.join(ids)}"
        return "it still has the finding" if any(found["rule"] == rule for found in made["findings"]) else ""


def of_variant(this: Variant, wanted: t.Sequence[rules.Rule], totals: dict[str, collections.Counter[str]]) -> list[str]:
    """Count what becomes of the remedies of a variant; return a line for each that is said and refused."""
    chosen: dict[str, Plain] = {}
    for rule in wanted:
        found = next((each for each in this.overrides(rule) if this.trips(each, rule.id)), None)
        if found:
            chosen[json.dumps(found, sort_keys=True)] = found
    wrong = []
    for overrides in chosen.values():
        made, offered = this.planned(overrides), this.judged(overrides)
        if made is None or offered is None:
            continue
        for found in made["findings"]:
            if found["rule"] not in totals:
                continue
            count = totals[found["rule"]]
            count["plans"] += 1
            offer = offered.offers.get(found["rule"])
            for change in (fix for fix in (offer.fixes if offer else ()) if fix):
                count["written"] += 1
                count["written refused"] += bool(this.refused(overrides, change, found["rule"]))
            for change in found["ways"]:
                why = this.refused(overrides, change, found["rule"])
                count["said"] += 1
                count["said refused"] += bool(why)
                if why:
                    wrong.append(
                        f"{this.entry['id']}: {json.dumps(overrides)}: {found['rule']}: {json.dumps(change)}: {why}"
                    )
    return wrong


def main(most: int, only: t.Sequence[str] = ("",)) -> int:
    """Print a row for each rule with changes; return 1 if one is said that is refused."""
    known = knowledge_base.base()
    wanted = [rule for rule in known.rules if rule.fix and rule.id.startswith(tuple(only))]
    totals = {rule.id: collections.Counter[str]() for rule in wanted}
    cells = [
        (name, variant)
        for name in sorted(knowledge.shared("profile"))
        for variant, values in (find_profile(name).get("variants") or {"": {}}).items()
        if values is not None
    ]
    wrong = []
    for number, (name, variant) in enumerate(cells[: most or None], 1):
        print(f"{number} of {len(cells)}: {name} {variant}", file=sys.stderr, flush=True)
        wrong += of_variant(Variant(name, variant, known), wanted, totals)
    keys = ("plans", "written", "written refused", "said", "said refused")
    print("| rule | plans with it | changes written | of these refused | said | of these refused |")
    print("|---|---|---|---|---|---|")
    for rule, count in totals.items():
        if count["plans"]:
            print(f"| {rule} | {' | '.join(str(count[key]) for key in keys)} |")
    whole = sum(totals.values(), collections.Counter[str]())
    print(f"| all {sum(bool(c['plans']) for c in totals.values())} | {' | '.join(str(whole[key]) for key in keys)} |")
    silent = [rule for rule, count in totals.items() if not count["plans"]]
    print(f"\n{len(cells[: most or None])} variants. No profile trips: {', '.join(silent)}")
    print("\n".join(wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 0, sys.argv[2:] or ("",)))
