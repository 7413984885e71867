# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of a pod that measures a served model: prints progress lines, and finally the report after a mark.

Runs in an engine's image, with its imports from this collection laid out beside it (kube/bench_pod.py). It needs Python 3.10 or
newer and no package. It does not print the answers' texts.
"""

from __future__ import annotations

import json
import pathlib
import sys
import typing as t

MARK, ASKED, PROGRAM = "=== dgxspark.cluster: the report ===", "asked.json", "measure.py"
OLDEST = (3, 10)  # oldest Python in engines' images
_ELSE = "Measure from the controller: -e dgxspark_bench_from=controller."


def lacks() -> str:
    """Return what the image lacks, with a remedy; "" if it has everything."""
    here = f"python3 of the image ({sys.executable}, {'.'.join(map(str, sys.version_info[:3]))})"
    if tuple(sys.version_info[:2]) < OLDEST:
        return f"{here} is too old, {'.'.join(map(str, OLDEST))} or newer is needed. {_ELSE}"
    return ""


def say(text: str) -> None:
    """Print a line and flush it."""
    sys.stdout.write(f"{' '.join(text.split())}\n")
    sys.stdout.flush()


def answer(**document: t.Any) -> int:
    """Print the result, always last; return the exit status."""
    say(MARK)
    say(json.dumps(document, separators=(",", ":")))
    return 0


def main(folder: pathlib.Path) -> int:
    """Run the measurement that this folder's file asks for."""
    if problem := lacks():
        return answer(error=problem)
    sys.path.insert(0, str(folder))
    from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, from_plain
    from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.run import run
    from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.wanted import BenchRequest, Known

    try:
        asked = json.loads((folder / ASKED).read_text(encoding="utf-8"))
        report = run(from_plain(BenchRequest, asked["wanted"]), from_plain(Known, asked["known"]), say)
    except CollectionError as exc:
        return answer(error=str(exc))
    return answer(report=report)


if __name__ == "__main__":
    raise SystemExit(main(pathlib.Path(__file__).parent))
