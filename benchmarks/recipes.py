# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan every recipe of a folder unchanged, and print the outcome: names, verdicts and reasons, but no text of a recipe.

Usage: recipes.py FOLDER …    (a folder's files end in .yaml, .yml, .sh or .txt)

The first rank's argv is read back with the same release's table and compared with the recipe's own flags, by each setting's
canonical name: which are the same, and which the plan adds, leaves out or changes. Each difference must be named by a finding or
be the plan's own addition; otherwise it is a fault, and the exit status is 1.
"""

from __future__ import annotations

import collections
import pathlib
import runpy
import sys
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[1]
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import load_tables, read_recipe  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.recipes import recipe_flags, recipe_formats  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.vocabulary.settings import read_layer  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan  # noqa: E402

KINDS = (".yaml", ".yml", ".sh", ".txt")


# What a plan tells each rank and a recipe does not: rendezvous, the rank's number, the parallelism, and the server.
SPREAD = frozenset(
    ["nnodes", "node_rank", "master_addr", "master_port", "dist_init_addr", "headless", "host", "port", "tp_size", "pp_size", "ep_size",
     "enable_expert_parallel", "model", "model_path", "revision"]
)  # fmt: skip


def compared(text: str, name: str, profile: dict[str, t.Any], made: dict[str, t.Any]) -> tuple[str, str]:
    """Return how the argv differs from the recipe's settings, and which differences are faults."""
    if not made["ranks"] or not made["ranks"][0]["argv"]:
        return "none", ""
    dialect = load_tables().dialect(made["engine"]["name"], made["engine"]["version"])
    argv = made["ranks"][0]["argv"]
    words = argv[2:] if argv[1] == "serve" else argv[argv.index("-m") + 2 :]
    _alone, given = recipe_flags.read_flags(words, dialect.parser)
    source = recipe_formats.read(text, name)
    _alone, mine = recipe_flags.read_flags(source.words, dialect.parser)
    told = {line["text"] for line in profile["recipe"]["lines"] if line["became"] in ("setting", "passed on")}

    def by_setting(flags: list[recipe_flags.Given], told: set[str] | None = None) -> dict[str, t.Any]:
        """Return values by each setting's canonical name, strings in lower case."""
        merged = recipe_flags.merged(flags, dialect.parser).values()
        kept = [one for one in merged if told is None or one.text in told]
        named = {dialect.named(one.name.replace("-", "_"))[0]: one for one in kept}
        return {key: one.value.lower() if isinstance(one.value, str) else one.value for key, one in named.items()}

    if not source.words:
        return "told by defaults", ""
    has, want = by_setting(given), by_setting(mine, told)
    because = " ".join(f"{found['rule']} {found['message']}" for found in made["findings"])
    said = [name for name in {*has, *want} if name in because or name.replace("_", "-") in because]
    # A recipe's variable may be a flag in this release.
    want |= {
        key: value
        for key, value in read_layer({}, profile["environment"], dialect)[0].items()
        if key in has and key not in want
    }
    added = sorted(has.keys() - want.keys() - SPREAD)
    left = sorted(want.keys() - has.keys() - SPREAD)
    changed = sorted(name for name in want.keys() & has.keys() - SPREAD if has[name] != want[name])
    same = sum(has.get(name) == value for name, value in want.items())
    groups = (("added", added), ("left out", left), ("changed", changed))
    faults = [
        *(f"added without a reason {name}" for name in added if name not in made["added"] and name not in said),
        *(f"lost {name}" for name in left if name not in said and want[name] not in (False, {}, [])),
        *(f"changed {name}" for name in changed if name not in said and name not in made["added"]),
    ]
    return f"{same} same" + "".join(f", {kind}: {' '.join(names)}" for kind, names in groups if names), ", ".join(
        faults
    )


def judged(path: pathlib.Path) -> tuple[str, str, str, str]:
    """Return a recipe's verdict, what it is planned for, the reason if it is not accepted, and faults of its argv."""
    try:
        profile = read_recipe(str(path))
        made = launch_plan(profile)
    except CollectionError as exc:
        return "refused", "", str(exc).removeprefix(f"recipe {path.name}: "), ""
    became = collections.Counter(line["became"] for line in profile["recipe"]["lines"])
    lines = ", ".join(f"{became[kind]} {kind}" for kind in ("setting", "ours", "passed on", "refused"))
    what = f"{made['engine']['name']} {made['engine']['version']}, {made['parallel']['nodes']} nodes; {lines}"
    argv, faults = compared(path.read_text(encoding="utf-8"), path.name, profile, made)
    errors = [f"{f['rule']}: {f['message']}" for f in made["findings"] if f["severity"] == "error"]
    return (
        made["verdict"],
        f"{what}; argv: {argv}",
        " ".join([*errors, *([f"ARGV: {faults}"] if faults else [])]),
        faults,
    )


def main(folders: t.Sequence[str]) -> int:
    """Print a table of all recipes, and the counts."""
    if not folders:
        raise SystemExit(__doc__)
    counts: collections.Counter[str] = collections.Counter()
    wrong = 0
    print("| recipe | verdict | planned for, and what became of its lines | reason |\n|---|---|---|---|")
    for folder in map(pathlib.Path, folders):
        for path in sorted(path for path in folder.rglob("*") if path.suffix in KINDS and path.is_file()):
            verdict, what, why, faults = judged(path)
            wrong += bool(faults)
            counts[verdict] += 1
            print(f"| {path.relative_to(folder)} | {verdict} | {what} | {why.replace('|', '/')[:300]} |")
    print(
        "\n"
        + ", ".join(f"{counts[key]} {key}" for key in ("proven", "unproven", "blocked", "refused"))
        + f"; {wrong} with a fault of the argv"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
