# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge published runs as if they were not known: each row of a file of evidence by the rules alone, and its speed by the estimate.

Usage: published_runs.py FILE …    (files like knowledge/evidence/*.yml)

Prints the verdict beside what happened, what speaks against a row (rules that name one of its settings), and the estimate beside the measured
tokens/s of each request where the model's facts are known. The status is 1 if a stable row is blocked.
"""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import re
import runpy
import statistics
import sys
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[1]
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from verdicts import entry_of, names_of, profile_of  # noqa: E402

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import load_tables  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.judgement import (  # noqa: E402
    evidence,
    knowledge_base,
    verdict,
)
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.model import estimate  # noqa: E402
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.profile import profile  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Speed:
    """One figure: tokens/s as estimated, its interval, and as measured. n: requests at once."""

    n: int
    made: float
    low: float
    high: float
    measured: float

    @property
    def ratio(self) -> float:
        """The estimate over what was measured."""
        return self.made / self.measured


def speeds(
    row: evidence.Row, chosen: profile.Profile, found: verdict.Judgement, known: knowledge_base.Base
) -> list[Speed]:
    """Return the estimated figures; nothing where the model's facts are not known. The interval is that of the nearest level shown."""
    said = estimate.estimate(chosen, found.runs.settings, found.draft, known.figures) if chosen.facts else None
    draft = found.draft if found.draft is None or found.draft.steps else None
    made = []
    for key in row.measured:
        if said and re.fullmatch(r"n\d+", key) and (measured := row.figure(key)):
            n = int(key[1:])
            level = min(estimate.LEVELS, key=lambda each: abs(each - n))
            value = estimate.tokens_per_second(chosen, found.runs.settings, draft, n, known.figures)
            wide = [said[side][f"n{level}"] / said[f"n{level}"] for side in ("low", "high")]
            made.append(Speed(n, value, wide[0] * value, wide[1] * value, measured))
    return made


def rows_of(file: str) -> t.Iterator[evidence.Row]:
    """Yield the rows of a file of evidence, laid in or not."""
    document = knowledge.read_yaml(pathlib.Path(file))
    for each in document["entries"]:
        entry = knowledge.merged(document.get("common", {}), each)
        knowledge.validate("evidence", entry, f"{file}: {each.get('id')}")
        yield evidence.row_of(entry, load_tables())


def main(files: t.Sequence[str]) -> int:
    """Print a row for each run, and the counts."""
    if not files:
        raise SystemExit(__doc__)
    known = knowledge_base.base()
    counts: collections.Counter[str] = collections.Counter()
    speeds_seen: list[Speed] = []
    print(
        "| run | engine | what happened | verdict | what speaks against it | estimated/measured |\n|---|---|---|---|---|---|"
    )
    for row in (each for file in files for each in rows_of(file)):
        chosen = profile_of(row, entry_of(row))
        found = verdict.judge(chosen, known, use_evidence=False)
        said = [
            f
            for f in found.findings
            if f.severity == "error" or (f.severity == "warning" and set(f.names) & names_of(row))
        ]
        rates = speeds(row, chosen, found, known)
        counts[f"{row.verdict}, {found.verdict}"] += 1
        counts["without facts"] += chosen.facts is None
        speeds_seen += rates
        shown = ", ".join(f"n{each.n} {each.made:.1f}/{each.measured:.1f} ({each.ratio - 1:+.0%})" for each in rates)
        print(
            f"| {row.id} | {row.run.engine} {row.run.version} | {row.verdict} | {found.verdict} | "
            f"{' '.join(dict.fromkeys(f.id for f in said))} | {shown} |"
        )
    print("\n" + ", ".join(f"{name}: {count}" for name, count in sorted(counts.items())))
    for n in sorted({each.n for each in speeds_seen}):
        of_n = [each for each in speeds_seen if each.n == n]
        error = statistics.median(abs(each.ratio - 1) for each in of_n)
        inside = sum(each.low <= each.measured <= each.high for each in of_n)
        bias = statistics.median(each.ratio for each in of_n)
        print(
            f"n{n}: {len(of_n)} figures, median error {error:.1%}, median ratio {bias:.2f}, {inside} inside their interval"
        )
    return int(counts["stable, blocked"] > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
