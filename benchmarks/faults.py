# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put the faults of faults.yml one at a time into a copy of this checkout, and say which test finds each, or that it lives.

Usage: faults.py [--only ID,…] [--area AREA] [--then COMMAND] [--check] [TEST …]
TEST: what pytest runs for every fault (a file, a folder), instead of the tests that faults.yml names as nearest. They run
in order until one fails: first the linter of the file, then tests that `make test` runs, then those marked `more`.
--then: a command for a fault that no test finds, such as the type check. --check: only see that each text is there, once.
At the end, the tests that found something run without a fault: one that fails anyway finds nothing.
Nothing in this checkout is changed. Exit status 1 if a fault lives.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import typing as t
from collections.abc import Iterator, Sequence

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIST = ROOT / "benchmarks" / "faults.yml"
NAME = pathlib.Path("ansible_collections", "dgxspark", "cluster")
LIMIT_S = 600  # for one step of one fault; one that hangs is found, too
# What pytest says of a selection without such tests.
NO_TESTS = 5
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Fault:
    """One fault: `before` in `file` becomes `after`; suffers: what an owner would meet; near: the tests to run first."""

    id: str
    area: str
    file: str
    before: str
    after: str
    suffers: str
    near: tuple[str, ...]

    def applied(self, text: str) -> str:
        """Return the file's text with the fault; ValueError unless `before` is there exactly once."""
        count = text.count(self.before)
        if count != 1 or self.before == self.after:
            raise ValueError(
                f"{self.id}: {self.file} has its text {count} times, not once: correct benchmarks/faults.yml."
            )
        return text.replace(self.before, self.after)


def load(path: pathlib.Path = LIST) -> list[Fault]:
    """Read the faults; TypeError for a missing or an unknown key, ValueError for an id that occurs twice."""
    found = [Fault(**{**entry, "near": tuple(entry["near"])}) for entry in yaml.safe_load(path.read_text("utf-8"))]
    ids = [fault.id for fault in found]
    if twice := sorted({each for each in ids if ids.count(each) > 1}):
        raise ValueError(f"{', '.join(twice)}: more than one fault of that id.")
    return found


def misfits(faults: Sequence[Fault], root: pathlib.Path = ROOT) -> list[str]:
    """Say which faults no longer fit the checkout."""
    said = []
    for fault in faults:
        try:
            fault.applied((root / fault.file).read_text("utf-8"))
        except (OSError, ValueError) as exc:
            said.append(str(exc))
        said += [
            f"{fault.id}: there is no {test}." for test in fault.near if not (root / test.partition("::")[0]).exists()
        ]
    return said


@contextlib.contextmanager
def copy_of(root: pathlib.Path) -> Iterator[tuple[pathlib.Path, dict[str, str]]]:
    """Yield a copy of the checkout's files, with git's index of its own, and the environment in which plays use that copy."""
    asked = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(asked, cwd=root, check=True, capture_output=True, text=True).stdout.split("\0")
    with tempfile.TemporaryDirectory(prefix="dgxspark-faults-") as place:
        # Not below ansible_collections/dgxspark: tests/conftest.py would take it for an installed copy.
        collections, copy = pathlib.Path(place, "collections"), pathlib.Path(place, "checkout")
        for name in filter(None, names):
            if (root / name).exists():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, copy / name, follow_symlinks=False)
        (collections / NAME.parent).mkdir(parents=True)
        (collections / NAME).symlink_to(copy)
        for command in (["init", "--quiet"], ["add", "--all"]):
            subprocess.run(["git", *command], cwd=copy, check=True)
        # The collections that ours needs: as the environment has them, except ours.
        for folder in os.environ.get("ANSIBLE_COLLECTIONS_PATH", "").split(os.pathsep):
            for other in pathlib.Path(folder, "ansible_collections").glob("*") if folder else ():
                if other.name != NAME.parts[1] and not (collections / NAME.parts[0] / other.name).exists():
                    (collections / NAME.parts[0] / other.name).symlink_to(other)
        own = {"ANSIBLE_COLLECTIONS_PATH": str(collections), "ANSIBLE_CONFIG": str(copy / "ansible.cfg")}
        yield copy, {**os.environ, **own, "PYTHONDONTWRITEBYTECODE": "1"}


class Look(t.NamedTuple):
    """What a fault came to: the target whose test found it, or `lives`; by what; seconds."""

    target: str
    by: str
    seconds: float


def steps(fault: Fault, tests: Sequence[str], then: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands to try in order, each with the target that runs it."""
    if fault.file.endswith(".py"):
        yield "test", ["ruff", "check", "--quiet", fault.file]
    elif fault.file.endswith(".yml"):
        yield "test", ["yamllint", "--strict", fault.file]
    pytest = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *(tests or fault.near)]
    # Whole stages of `make test-more`.
    later = all(test.startswith(("tests/oracle", "tests/attacks")) for test in tests or fault.near)
    yield "test-more" if later else "test", [*pytest, "-m", "not more and not long"]
    yield "test-more", [*pytest, "-m", "more and not long"]
    if then:
        yield "test", shlex.split(then)


def look(fault: Fault, copy: pathlib.Path, environment: dict[str, str], tests: Sequence[str], then: str) -> Look:
    """Try one fault, and take it out again."""
    began, file = time.monotonic(), copy / fault.file
    whole = file.read_text("utf-8")
    file.write_text(fault.applied(whole), "utf-8")
    try:
        for target, command in steps(fault, tests, then):
            try:
                ran = subprocess.run(
                    command, cwd=copy, env=environment, capture_output=True, text=True, timeout=LIMIT_S
                )
            except subprocess.TimeoutExpired:
                return Look(target, f"{command[0]} did not end within {LIMIT_S} s", time.monotonic() - began)
            if ran.returncode not in (0, NO_TESTS):
                named = FAILED.search(ran.stdout)
                by = named[1] if named else " ".join((ran.stdout + ran.stderr).split())[-300:]
                return Look(target, by, time.monotonic() - began)
        return Look("lives", "", time.monotonic() - began)
    finally:
        file.write_text(whole, "utf-8")


def failing(tests: Sequence[str], copy: pathlib.Path, environment: dict[str, str]) -> list[str]:
    """Return which tests fail without a fault."""
    if not tests:
        return []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    ran = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    return FAILED.findall(ran.stdout) or ([] if ran.returncode == 0 else [ran.stdout[-300:]])


def main(words: Sequence[str] | None = None) -> int:
    """Try the faults and print a line for each, then how many each target finds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--area", default="")
    parser.add_argument("--then", default="")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("tests", nargs="*")
    given = parser.parse_args(words)
    faults = load()
    if wrong := misfits(faults):
        print(*wrong, sep="\n", file=sys.stderr)
        return 1
    only = set(filter(None, given.only.split(",")))
    if unknown := only - {fault.id for fault in faults}:
        parser.error(f"--only: there is no fault {', '.join(sorted(unknown))}")
    chosen = [f for f in faults if f.id in (only or {f.id}) and f.area in (given.area or f.area)]
    if given.check:
        print(f"{len(faults)} faults fit.")
        return 0
    counts: dict[str, int] = {}
    finders: set[str] = set()
    with copy_of(ROOT) as (copy, environment):
        for fault in chosen:
            seen = look(fault, copy, environment, given.tests, given.then)
            counts[seen.target] = counts.get(seen.target, 0) + 1
            finders |= {seen.by} if seen.by.startswith("tests/") else set()
            print(
                f"{fault.area:<10}{fault.id:<20}{seen.target:<10}{seen.seconds:6.1f} s  {seen.by or fault.suffers}",
                flush=True,
            )
        anyway = failing(sorted(finders), copy, environment)
    print(", ".join(f"{target} {count}" for target, count in sorted(counts.items())), f"of {len(chosen)}")
    for test in anyway:
        print(f"{test} fails without a fault, too: what it found does not count.")
    return 1 if counts.get("lives") or anyway else 0


if __name__ == "__main__":
    raise SystemExit(main())
