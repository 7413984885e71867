# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the table of bad_days.yml: what an owner met that day, what an owner meets now, and the tests that show it.

Usage: bad_days.py [--run]
--run: run the tests that need no lab, and write what came of each. Exit status 1 if one fails, or is not there.
Those in tests/lab: tools/with_lab.py 4 pytest tests/lab -m long.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIST = ROOT / "benchmarks" / "bad_days.yml"
ENDED = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED) (\S+?)(?:\[.*)?(?: - .*)?$", re.MULTILINE)


def absent(tests: list[str], root: pathlib.Path = ROOT) -> list[str]:
    """Return the tests that are not in their file."""
    missing = []
    for test in tests:
        path, _colons, name = test.partition("::")
        file = root / path
        if not file.is_file() or f"def {name}(" not in file.read_text("utf-8"):
            missing.append(test)
    return missing


def outcomes(tests: list[str]) -> dict[str, str]:
    """Run tests, each in any of its cases; return how each ended."""
    said = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-m", "", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    ).stdout
    found: dict[str, set[str]] = {}
    for how, test in ENDED.findall(said):
        found.setdefault(test, set()).add(how)
    return {
        test: "passed" if found.get(test) == {"PASSED"} else ", ".join(sorted(found.get(test, {"not run"})))
        for test in tests
    }


def main() -> int:
    """Print the table."""
    days = yaml.safe_load(LIST.read_text("utf-8"))
    tests = sorted({test for day in days for test in day["tests"]})
    if gone := absent(tests):
        print("There is no", *gone, sep="\n", file=sys.stderr)
        return 1
    light = [test for test in tests if not test.startswith("tests/lab/")]
    ended = outcomes(light) if "--run" in sys.argv[1:] else {}
    print("| what | then | now | shown by |\n|---|---|---|---|")
    for day in days:
        shown = [
            f"`{test.removeprefix('tests/')}`{f' ({ended[test]})' if test in ended else ''}" for test in day["tests"]
        ]
        print(f"| {day['day']} | {day['then']} | {day['now']} | {'<br>'.join(shown)} |")
    bad = [test for test, how in ended.items() if how != "passed"]
    print(f"\n{len(days)} days, {len(tests)} tests, {len(light)} of them without a lab; {len(bad)} did not pass.")
    return bool(bad)


if __name__ == "__main__":
    raise SystemExit(main())
