# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan all profiles in all variants and engine versions, and all measured rows; print how many plans, and their SHA-256.

Usage: all_plans.py [FILE] [--against FILE] [--recipes FOLDER]

FILE: where the plans go as JSON. --against: such a file of another commit; each plan that differs is named, with the keys that do,
and the exit status is 1. --recipes: a folder of other tools' recipes, which are planned too. A refactoring changes nothing here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import runpy
import sys
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[1]
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import (  # noqa: E402
    SHAPES,
    find_profile,
    load_tables,
    read_recipe,
    recommend,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan, memory_plan  # noqa: E402
from ansible_collections.dgxspark.cluster.tests.unit.kube_inputs import fabric  # noqa: E402

Plain = dict[str, t.Any]
HOSTS = [f"spark{number}" for number in range(1, 9)]
SECOND = {"name": "second", "vf_index": 1, "port": 31000}


def clusters() -> dict[str, tuple[Plain, Plain]]:
    """Return clusters by name, each with the overrides that go with it."""
    four = {"hosts": HOSTS[:4], "nodes": {"spark1": {}}, "taken_gib": {"spark1": 20.0}}
    return {
        "none": ({}, {}),
        "eight": ({"hosts": HOSTS, "free_gib": 104.0}, {}),
        "fabric": ({"hosts": HOSTS, "fabric": fabric(8), "platform": {"nccl": "2.29.2", "kernel": "6.11.0"}}, {"instance": SECOND}),
        "ring": ({"hosts": HOSTS[:4], "fabric": fabric(4, topology="ring"), "nccl": {"attachment": "vf"}}, {}),
        "unmeasured": (four, {}),
    }  # fmt: skip


def attempt(make: t.Callable[..., t.Any], *arguments: t.Any) -> t.Any:
    """Return a plan, or why it is refused."""
    try:
        return make(*arguments)
    except CollectionError as exc:
        return {"refused": str(exc)}


def of_profiles() -> t.Iterator[tuple[str, t.Any]]:
    """Yield the plans of all profiles and variants: in each cluster, and with each known version of their engine."""
    tables, places = load_tables(), clusters()
    for name in sorted(knowledge.shared("profile")):
        for variant in find_profile(name).get("variants", {"": {}}):
            chosen: Plain = {"variant": variant} if variant else {}
            for place, (cluster, overrides) in places.items():
                yield f"{name} {variant} in {place}", attempt(launch_plan, name, cluster, chosen | overrides)
            yield f"{name} {variant}: memory", attempt(memory_plan, name, {"free_gib": 100.0}, chosen)
            engine = attempt(launch_plan, name, {}, chosen).get("engine", {}).get("name", "")
            for parser in tables.versions(engine):
                other = {"engine": {"version": parser.version, "versions": ""}}
                yield f"{name} {variant} with {parser.version}", attempt(launch_plan, name, {}, chosen | other)
        for shape in SHAPES:
            yield f"{name} for {shape}", attempt(recommend, name, shape)


def of_rows() -> t.Iterator[tuple[str, t.Any]]:
    """Yield plans with the settings of each measured row, laid on the profile of its model."""
    for row in knowledge.load("evidence").values():
        settings = {key: value for key, value in row["settings"].items() if value is not None}
        parallel = {key: row[key] for key in ("nodes", "tp", "pp", "ep")}
        engine = {key: row["engine"][key] for key in ("name", "version")} | {"versions": ""}
        given = {"engine": engine, "parallel": parallel, "settings": settings}
        yield f"row {row['id']}", attempt(launch_plan, row["model"], {}, given)


def of_recipes(folder: pathlib.Path) -> t.Iterator[tuple[str, t.Any]]:
    """Yield the plans of the recipes in a folder."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".yaml", ".yml", ".sh", ".txt"):
            read = attempt(read_recipe, str(path))
            yield str(path.relative_to(folder)), read if "refused" in read else attempt(launch_plan, read)


def differences(before: t.Mapping[str, t.Any], after: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """Yield each plan that differs, with the keys that do."""
    for name in sorted(before.keys() | after.keys()):
        one, other = before.get(name, {}), after.get(name, {})
        if one != other:
            yield f"{name}: {', '.join(key for key in sorted(one.keys() | other.keys()) if one.get(key) != other.get(key))}"


def main() -> int:
    """Plan, print, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=pathlib.Path)
    parser.add_argument("--against", type=pathlib.Path)
    parser.add_argument("--recipes", type=pathlib.Path)
    given = parser.parse_args()
    if not pathlib.Path(knowledge.__file__).resolve().is_relative_to(ROOT):
        raise SystemExit(f"all_plans: {knowledge.__file__} is of another checkout. Unset PYTHONPATH.")
    made = {**dict(of_profiles()), **dict(of_rows()), **(dict(of_recipes(given.recipes)) if given.recipes else {})}
    text = json.dumps(made, sort_keys=True, indent=0, default=str)
    if given.file:
        given.file.write_text(text, encoding="utf-8")
    refused = sum("refused" in plan for plan in made.values())
    print(f"{len(made)} plans, {refused} of them refused, SHA-256 {hashlib.sha256(text.encode()).hexdigest()}")
    if not given.against:
        return 0
    found = list(differences(json.loads(given.against.read_text(encoding="utf-8")), json.loads(text)))
    print("\n".join(found) or "No plan differs.")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
