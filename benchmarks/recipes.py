# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan every recipe of a folder as it is, and say what came out: names, verdicts and reasons, no text of a recipe.

Usage: recipes.py FOLDER …    (a folder's files end in .yaml, .yml, .sh or .txt)
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
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving import plan, recipe  # noqa: E402

KINDS = (".yaml", ".yml", ".sh", ".txt")


def judged(path: pathlib.Path) -> tuple[str, str, str]:
    """Return a recipe's verdict, what it is planned for, and the reason where it is not let through."""
    try:
        profile = recipe.read(str(path))
        made = plan.launch_plan(profile)
    except CollectionError as exc:
        return "refused", "", str(exc).removeprefix(f"recipe {path.name}: ")
    became = collections.Counter(line["became"] for line in profile["recipe"]["lines"])
    lines = ", ".join(f"{became[kind]} {kind}" for kind in ("setting", "ours", "passed on", "refused"))
    what = f"{made['engine']['name']} {made['engine']['version']}, {made['parallel']['nodes']} nodes; {lines}"
    errors = [f"{f['rule']}: {f['message']}" for f in made["findings"] if f["severity"] == "error"]
    return made["verdict"], what, " ".join(errors)


def main(folders: t.Sequence[str]) -> int:
    """Print a table of all recipes, and the counts."""
    if not folders:
        raise SystemExit(__doc__)
    counts: collections.Counter[str] = collections.Counter()
    print("| recipe | verdict | planned for, and what became of its lines | reason |\n|---|---|---|---|")
    for folder in map(pathlib.Path, folders):
        for path in sorted(path for path in folder.rglob("*") if path.suffix in KINDS and path.is_file()):
            verdict, what, why = judged(path)
            counts[verdict] += 1
            print(f"| {path.relative_to(folder)} | {verdict} | {what} | {why.replace('|', '/')[:300]} |")
    print("\n" + ", ".join(f"{counts[key]} {key}" for key in ("proven", "unproven", "blocked", "refused")))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
