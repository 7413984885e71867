"""Measures the guards as a classifier, on the half of the texts of tests/unit/guard_texts that nothing was tuned on.

Usage: guards_as_classifier.py [tune|test|blind]. For each family of texts, a model that writes them is judged by the whole bench at 1, 4 and 8
requests at once: garbage passes if the level is good, benign text fails if it is not. `always`: it writes garbage to all requests;
`together`: alone it is sound; `load`: it is sound whenever it is asked the greedy prompt; `begun`: its garbage follows the question, up to
the limit; `answered`: it follows the right answer; `unknown`: it is sound whenever the answer is known, so that only the texts can tell.
Beneath, the same for the guard of a single text.
"""

from __future__ import annotations

import pathlib
import random
import runpy
import subprocess
import sys
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[1]
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from ansible_collections.dgxspark.cluster.tests.unit import guard_texts  # noqa: E402
from ansible_collections.dgxspark.cluster.tests.unit.guard_texts import judged  # noqa: E402

SEEDS = 5
_LIMIT = judged.CHAT.max_tokens * 4


def share(missed: int, count: int) -> str:
    """Return a share in words."""
    return f"{missed}/{count} ({missed / count:.1%})"


def whole(half: guard_texts.Half) -> list[str]:
    """Return the lines of the bench's verdicts."""
    bad, good = guard_texts.of(half, True), guard_texts.of(half, False)
    lines, by = (
        [
            f"| n | garbage passes: {' | '.join(judged.MODES)} | benign fails |",
            "|---|" + "---|" * (len(judged.MODES) + 1),
        ],
        dict[str, str](),
    )
    for n in judged.LEVELS:
        cells = []
        for mode in judged.MODES:
            if n == 1 and mode == "together":
                cells.append("-")
                continue
            passed = {each.name: _good(each, n, mode) for each in bad}
            cells.append(share(sum(passed.values()), SEEDS * len(bad)))
            by |= {f"{name} ({mode}, n={n})": f"{count}/{SEEDS} pass" for name, count in passed.items() if count}
        failed = {each.name: SEEDS - _good(each, n, "always") for each in good}
        by |= {f"{name} (n={n})": f"{count}/{SEEDS} fail" for name, count in failed.items() if count}
        lines.append(
            f"| {n} | {' | '.join(cells)} | {share(sum(failed.values()), SEEDS * len(good)) if good else '-'} |"
        )
    return [*lines, "", *(f"- {name}: {count}" for name, count in by.items())]


def _good(family: guard_texts.Family, n: int, mode: str) -> int:
    return sum(judged.result(family, n, mode, seed).verdict == "good" for seed in range(SEEDS))


def single(half: guard_texts.Half) -> list[str]:
    """Return the lines of the single texts' verdicts."""
    lines = ["| family | kind | called garbage | from |", "|---|---|---|---|"]
    totals = {True: [0, 0], False: [0, 0]}
    for each in (*guard_texts.of(half, True), *guard_texts.of(half, False)):
        texts = [each.make(random.Random(f"{each.name} {seed}"), "What is a lighthouse for?") for seed in range(SEEDS)]
        count = sum(judged.tripped(text[:_LIMIT], len(text) < _LIMIT) is not None for text in texts)
        totals[each.garbage][0] += count
        totals[each.garbage][1] += SEEDS
        lines.append(f"| {each.name} | {'garbage' if each.garbage else 'benign'} | {count}/{SEEDS} | {each.source} |")
    (caught, bad), (blamed, good) = totals[True], totals[False]
    return [
        f"Single texts: {share(bad - caught, bad)} of garbage pass, {share(blamed, good) if good else 'none'} of benign fail.",
        "",
        *lines,
    ]


def main(half: guard_texts.Half) -> None:
    """Print both tables."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    print(f"The half `{half}`, {SEEDS} seeds for each family, at commit {commit}.\n")
    print("\n".join([*whole(half), "", *single(half)]))


if __name__ == "__main__":
    main(t.cast(guard_texts.Half, next((half for half in ("tune", "blind") if sys.argv[1:] == [half]), "test")))
