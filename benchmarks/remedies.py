# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the remedies of all rules, over the profiles that trip them, and count how many are refused.

Usage: remedies.py [PROFILES [RULE …]]    (how many profiles per rule at most, 0: all; beginnings of rules' ids)

A rule is provoked by the values that its condition compares settings with, by other splits, and by little free memory. Each change
that its remedy could name is then planned as an owner would, as an override: `written` are all of a rule's changes, `said` are those
that the plan says. A change is refused if the plan with it is blocked or cannot be made, or still has the finding.
"""

from __future__ import annotations

import collections
import itertools
import pathlib
import runpy
import sys
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[1]
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import plan, profile, rules, verdict  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.versions import matches  # noqa: E402

Plain = dict[str, t.Any]
HOSTS = [f"spark{number}" for number in range(1, 9)]
MOST = 6  # provocations of a rule for one profile


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


def refused(name: str, cluster: Plain, overrides: Plain, change: Plain, rule: str) -> bool:
    """Whether a plan with a change does not pass."""
    spread = {**overrides.get("parallel", {}), **change.get("parallel", {})}
    settings = {**overrides.get("settings", {}), **change.get("settings", {})}
    try:
        made = plan.launch_plan(name, cluster, {**overrides, "settings": settings, "parallel": spread})
    except CollectionError:
        return True
    return made["verdict"] == "blocked" or any(found["rule"] == rule for found in made["findings"])


def main(most: int, only: t.Sequence[str] = ("",)) -> int:
    """Print a row for each rule with changes; return 1 if one is said that is refused."""
    known = verdict.base()
    names = sorted(knowledge.shared("profile"))
    totals: collections.Counter[str] = collections.Counter()
    silent = []
    print(
        "| rule | plans with it | changes written | of these refused | said | of these refused |\n|---|---|---|---|---|---|"
    )
    for rule in known.rules:
        if not rule.fix or not rule.id.startswith(tuple(only)):
            continue
        count: collections.Counter[str] = collections.Counter()
        for name in names:
            if most and count["plans"] >= most:
                break
            for overrides, made in tripped(rule, name, known):
                found = next(f for f in made["findings"] if f["rule"] == rule.id)
                cluster = {"hosts": HOSTS[: made["parallel"]["nodes"]], "free_gib": 104.0}
                count["plans"] += 1
                for kind, changes in (("written", written(name, overrides, rule, known)), ("said", found["ways"])):
                    count[kind] += len(changes)
                    count[f"{kind} refused"] += sum(refused(name, cluster, overrides, c, rule.id) for c in changes)
                break
        totals += count
        if not count["plans"]:
            silent.append(rule.id)
        row = (count[key] for key in ("plans", "written", "written refused", "said", "said refused"))
        print(f"| {rule.id} | {' | '.join(map(str, row))} |", flush=True)
    print(f"\n{dict(totals)}\nNo profile trips: {', '.join(silent)}")
    return int(totals["said refused"] > 0)


def tripped(rule: rules.Rule, name: str, known: verdict.Base) -> t.Iterator[tuple[Plain, Plain]]:
    """Yield overrides of a profile with which its plan has a rule's finding, and the plan."""
    entry = profile.find(name)
    engine, version = entry["engine"]["name"], entry["engine"]["version"]
    if rule.engines and engine not in rule.engines:
        return
    overrides: Plain = {}
    if rule.engines and not matches(version, rule.engines[engine]):
        release = next(
            (p.version for p in known.tables.versions(engine) if matches(p.version, rule.engines[engine])), None
        )
        if release is None:
            return
        overrides = {"engine": {"version": release, "versions": "", "image": None}}
    own = entry.get("parallel", {}).get("nodes", 1)
    for settings, spread in itertools.islice(provocations(rule, own), MOST):
        share = settings.pop("share", None)
        if share:
            settings["gpu_memory_utilization" if engine == "vllm" else "mem_fraction_static"] = share
        asked = {**overrides, "settings": settings, "parallel": spread}
        nodes = spread.get("nodes", own)
        try:
            made = plan.launch_plan(name, {"hosts": HOSTS[:nodes], "free_gib": 104.0}, asked)
        except CollectionError:
            continue
        if any(found["rule"] == rule.id for found in made["findings"]):
            yield asked, made


def written(name: str, overrides: Plain, rule: rules.Rule, known: verdict.Base) -> list[Plain]:
    """Return all changes that a rule has for a plan, whether they pass or not."""
    chosen = profile.resolve(profile.find(name), overrides, known.tables)
    hosts = {"hosts": HOSTS[: chosen.nodes], "free_gib": 104.0}
    free, _seen = plan._free(hosts, hosts["hosts"], known)
    offer = verdict.judge(chosen, known, free=free).offers.get(rule.id)
    return [dict(fix) for fix in (offer.fixes if offer else ()) if fix]


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3, sys.argv[2:] or ("",)))
