# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Count the models of public recipes: which are run most, in how many registries, and which of them have a profile here.

Usage: most_run.py FOLDER …    (each folder is one registry; its files end in .yaml, .yml, .sh or .txt; files that are no recipe do not count)

A model counts once for each recipe, whatever its owner and quantisation: both are left out of its name.
"""

from __future__ import annotations

import collections
import pathlib
import re
import runpy
import sys
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[1]
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import read_recipe  # noqa: E402

SHOWN = 25
KINDS = (".yaml", ".yml", ".sh", ".txt")
# What names a quantisation or an edition of one model, not another model.
_EDITION = re.compile(
    r"[-_.](?:nvfp4\w*|mxfp[48]\w*|fp8\w*|fp4\w*|int[48]\w*|awq\w*|gptq\w*|w4a(?:4|16)\w*|[48]bit|bf16|autoround|dynamic|mixed|it|instruct|"
    r"unsloth|prismaquant\w*|prismascout|hybrid|qat|q4_0|ct|aqlm|vision|abliterated|uncensored|heretic|aeon\w*|ultimate|multimodal|mtp|xs|rl|\d{4})(?=$|[-_.])",
    re.IGNORECASE,
)
_MAKER = re.compile(r"^(?:nvidia|huihui|qwen_)[-_]", re.IGNORECASE)


def plain(model: str) -> str:
    """Return a model's name without its owner, edition and quantisation, in small letters."""
    name, before = model.rpartition("/")[2].lower(), ""
    while name != before:
        before, name = name, _EDITION.sub("", _MAKER.sub("", name))
    return name.strip("-_.")


def models(folder: pathlib.Path) -> t.Iterator[str]:
    """Yield the model of each recipe of a registry."""
    for path in sorted(path for path in folder.rglob("*") if path.suffix in KINDS and path.is_file()):
        try:
            yield str(read_recipe(str(path))["model"])
        except CollectionError:
            continue


def main(folders: t.Sequence[str]) -> int:
    """Print the models that most recipes serve."""
    if not folders:
        raise SystemExit(__doc__)
    counts: collections.Counter[str] = collections.Counter()
    where: dict[str, set[str]] = collections.defaultdict(set)
    for folder in folders:
        for model in models(pathlib.Path(folder)):
            counts[plain(model)] += 1
            where[plain(model)].add(folder)
    known = {plain(str(each["model"])) for each in knowledge.load("profile").values() if "model" in each}
    print(f"{counts.total()} recipes of {len(folders)} registries, {len(counts)} models\n")
    print("| model | recipes | registries | profile here |\n|---|---|---|---|")
    for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]:
        print(f"| {name} | {count} | {len(where[name])} | {'yes' if name in known else 'no'} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
