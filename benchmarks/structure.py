# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print how a checkout's planner and plugins are built, as a table: files, lines, doors, imports in circles.

Usage: structure.py [CHECKOUT …]    (this one by default; of an older one, plugin_utils/serving is its planner)
"""

from __future__ import annotations

import ast
import pathlib
import sys
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[1]
OWN = "ansible_collections.dgxspark.cluster.plugins."


# From below; an adapter of a cluster stands above the planner. Of an older checkout, a file belongs where this one has its name.
LAYERS = ("vocabulary", "model", "profile", "judgement", "authoring", "recipes", "inspection")
ADAPTER = frozenset(("launch", "nodes", "ranks_environment"))


def level(stem: str) -> int | None:
    """Return how high a file of the planner stands; those above judgement do not import each other."""
    if stem in ADAPTER:
        return len(LAYERS)
    found = next((ROOT / "plugins" / "plugin_utils" / "planner").glob(f"*/{stem}.py"), None)
    return min(LAYERS.index(found.parent.name), 4) if found else None


def imported(path: pathlib.Path, plugins: pathlib.Path) -> set[str]:
    """Return the modules of ours that a file imports, and what it imports of them, below plugins."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            own = list(path.relative_to(plugins).parts[: -node.level]) if node.level else []
            module = ".".join([*own, *filter(None, [node.module])]) if node.level else str(node.module)
            if node.level or module.startswith(OWN):
                found |= {f"{module}.{each.name}".removeprefix(OWN) for each in node.names}
    return found


def circles(edges: t.Mapping[str, set[str]]) -> set[tuple[str, str]]:
    """Return the imports that lie on a way back to where they begin."""

    def reached(start: str) -> set[str]:
        found, left = set(), [start]
        while left:
            new = edges.get(left.pop(), set()) - found
            found |= new
            left += new
        return found

    back = {name: reached(name) for name in edges}
    return {(one, other) for one in edges for other in edges[one] if one in back.get(other, ())}


def table(root: pathlib.Path) -> dict[str, int]:
    """Return the figures of a checkout by what they count."""
    plugins = root / "plugins"
    utils = plugins / "plugin_utils"
    planner = utils / ("planner" if (utils / "planner").is_dir() else "serving")
    files = sorted(planner.rglob("*.py"))
    names = {".".join(path.relative_to(plugins).with_suffix("").parts): path for path in plugins.rglob("*.py")}
    edges = {
        name: {
            other for found in imported(path, plugins) for other in (found, found.rpartition(".")[0]) if other in names
        }
        for name, path in names.items()
    }
    tables = [path for path in (root / "knowledge" / "engines").rglob("*.*") if path.is_file()]
    inside = {name for name, path in names.items() if planner in path.parents}
    doors = {other for name in edges if name not in inside for other in edges[name] & inside}
    asking = {name for name in edges if name not in inside and edges[name] & inside}
    climbs = [
        (name, other)
        for name in inside
        for other in edges[name] & inside
        for low, high in [(level(names[name].stem), level(names[other].stem))]
        if low is not None and high is not None and low < high
    ]
    return {
        "planner: files": len(files),
        "planner: lines": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files),
        "planner: longest file, lines": max(len(path.read_text(encoding="utf-8").splitlines()) for path in files),
        "planner: modules that others import": len(doors),
        "planner: files that import it": len(asking),
        "planner: imports of a higher layer": len(climbs),
        "planner: imports of files in a circle": len(circles({name: edges[name] & inside for name in inside})),
        "plugins: imports of files in a circle": len(circles(edges)),
        "actions": len(list((plugins / "action").glob("*.py"))),
        "flag tables: files": len(tables),
        "flag tables: lines": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in tables),
    }


def main() -> int:
    """Print the figures of each checkout side by side."""
    found = [table(pathlib.Path(name).resolve()) for name in sys.argv[1:] or [str(ROOT)]]
    for key in found[0]:
        print(f"| {key} | {' | '.join(str(each[key]) for each in found)} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
