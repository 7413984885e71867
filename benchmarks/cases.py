# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Score the collection on a folder of cases: logs go to `explain`, recipes to the plan, versions to what the doctor knows of them.

Usage: cases.py FOLDER [ANSWERS]    (ANSWERS: a YAML file like benchmarks/cases.yml, the default)
       cases.py                     the counts of each set of public reports in this folder, and of all

An answer names, for a file, what must be said (`says`: expressions, all of them), and what must not (`never`). The outcome is
`right`; `wrong` if something is said that must not be; `silent` if nothing known is found, or nothing is said of a recipe; else
`unclear`. Files without an answer are not scored. A file `*.versions.yml` maps parts of the platform to their versions. The status is 1 if one is wrong.
"""

from __future__ import annotations

import collections
import pathlib
import re
import runpy
import sys
import typing as t

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
KINDS = ("right", "silent", "unclear", "wrong")
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Reader  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import known_bad, signatures  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import explained as explained_nccl  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import transport  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import read_recipe  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan  # noqa: E402


def explained(path: pathlib.Path, table: signatures.Table) -> list[str]:
    """Return what is said of a log: causes, then harmless lines, each with its remedy."""
    nccl = Reader(transport.signatures())
    readings = signatures.read_path(str(path), table, nccl)
    report = signatures.explain(readings, table, explained_nccl.traffic(nccl.finish()))["report"]
    said = [f"{each['cause']} {each['remedy']}" for each in report["findings"]]
    # What the log itself says is not an answer: its words do not count.
    return said + ([signatures.LAST] if report["ended"] else [])


def planned(path: pathlib.Path) -> list[str]:
    """Return what is said of a recipe: of its lines, and the plan's findings, each with its remedy."""
    try:
        profile = read_recipe(str(path))
        made = launch_plan(profile)
    except CollectionError as exc:
        return [str(exc)]
    lines = [f"{line['text']} → {line['became']}: {line['why']}" for line in profile["recipe"]["lines"]]
    return lines + [f"{found['rule']}: {found['message']} {found['remedy']}" for found in made["findings"]]


def known(path: pathlib.Path) -> list[str]:
    """Return what is said of a node's versions, as the doctor says it."""
    found, environment = known_bad.platform_findings(
        yaml.safe_load(path.read_text(encoding="utf-8")), known_bad.load_known_bad()
    )
    return [f"{each.message} {each.remedy}" for each in found] + [
        f"{name}={value}" for name, value in environment.items()
    ]


def said_of(path: pathlib.Path, table: signatures.Table) -> list[str]:
    """Return what is said of a case, by the kind of its file."""
    if path.name.endswith(".versions.yml"):
        return known(path)
    return explained(path, table) if path.suffix == ".log" else planned(path)


def scored(said: list[str], answer: dict[str, list[str]]) -> str:
    """Return `right`, `silent`, `unclear` or `wrong`."""
    text = "\n".join(said)
    if any(re.search(expression, text) for expression in answer.get("never", ())):
        return "wrong"
    if all(re.search(expression, text) for expression in answer.get("says", ())):
        return "right"
    return "unclear" if said else "silent"


def outcomes(
    folder: pathlib.Path, answers: pathlib.Path, table: signatures.Table
) -> t.Iterator[tuple[str, str, list[str]]]:
    """Yield the name of each case, its outcome (or `not run`), and what is said of it."""
    for name, answer in yaml.safe_load(answers.read_text(encoding="utf-8")).items():
        path = folder / name
        said = said_of(path, table) if path.exists() else []
        yield name, scored(said, answer) if path.exists() else "not run", said


def main(folder: pathlib.Path, answers: pathlib.Path) -> int:
    """Print a row for each case, and the counts."""
    counts: collections.Counter[str] = collections.Counter()
    print("| case | outcome | what is said first |\n|---|---|---|")
    for name, outcome, said in outcomes(folder, answers, signatures.load_table()):
        counts[outcome] += 1
        print(f"| {name} | {outcome} | {said[0][:160].replace('|', '/') if said else ''} |")
    print("\n" + ", ".join(f"{counts[kind]} {kind}" for kind in KINDS))
    return int(counts["wrong"] > 0)


def sets() -> int:
    """Print the counts of each set of reports in this folder."""
    table = signatures.load_table()
    whole: collections.Counter[str] = collections.Counter()
    print(f"| set | inputs | {' | '.join(KINDS)} |\n|---|---|{'---|' * len(KINDS)}")
    for answers in sorted((ROOT / "benchmarks").glob("reports*.yml")):
        counts = collections.Counter(
            outcome for _name, outcome, _said in outcomes(answers.with_suffix(""), answers, table)
        )
        whole += counts
        print(f"| {answers.stem} | {counts.total()} | {' | '.join(str(counts[kind]) for kind in KINDS)} |")
    print(f"| all | {whole.total()} | {' | '.join(str(whole[kind]) for kind in KINDS)} |")
    return int(whole["wrong"] > 0)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(sets())
    raise SystemExit(
        main(
            pathlib.Path(sys.argv[1]),
            pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "benchmarks" / "cases.yml",
        )
    )
