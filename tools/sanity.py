"""Run ansible-test sanity on a staged copy, and fail if it tested nothing.

Usage: sanity.py [--all] VENV [TEST …], the environment whose ansible-test is run, and the tests: all of them if none is named,
all others if each begins with a minus (-pylint). It checks what is built and shipped, as Galaxy does; with --all also the
repository's tests, tools and benchmarks. Everything it needs is in a temporary folder, HOME included: it leaves nothing behind.
"""

from __future__ import annotations

import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import stage
import yaml

STAND_IN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "stand_ins" / "get_pip.py"


def leave_what_is_shipped(collection: pathlib.Path) -> None:
    """Remove from the staged copy what the built collection lacks, except for sanity's ignore lists."""
    ignored = yaml.safe_load((collection / "galaxy.yml").read_text(encoding="utf-8"))["build_ignore"]
    gone = [path for path in collection.iterdir() if any(fnmatch.fnmatch(path.name, pattern) for pattern in ignored)]
    gone.remove(collection / "tests")
    gone += [path for path in (collection / "tests").iterdir() if path.name != "sanity"]
    for path in gone:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    for path in (collection / "tests" / "sanity").glob("ignore-*.txt"):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join(line for line in lines if (collection / line.split()[0]).exists()), encoding="utf-8")


def main(venv: pathlib.Path, tests: list[str], everything: bool = False) -> int:
    """Stage, run, judge."""
    python = venv / "bin" / "python"
    code = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    version = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="dgxspark-sanity-") as folder:
        home = pathlib.Path(folder, "home")
        cache = home / ".ansible" / "test" / "cache"
        cache.mkdir(parents=True)
        for release in ("24_2", "25_2"):
            shutil.copy(STAND_IN, cache / f"get_pip_{release}.py")
        collection = stage.main(pathlib.Path(folder, "staged"))
        if not everything:
            leave_what_is_shipped(collection)
        # pyenv's shims pose as Pythons of versions that are not installed.
        path = [p for p in os.environ["PATH"].split(os.pathsep) if ".pyenv/shims" not in p]
        environment = {
            **os.environ,
            "HOME": str(home),
            "PATH": os.pathsep.join([str(venv / "bin"), *path]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [str(venv / "bin" / "ansible-test"), "sanity", "--local", "--python", version, "--color", "no"]
        for test in tests:
            command += ["--skip-test", test[1:]] if test.startswith("-") else ["--test", test]
        process = subprocess.run(
            command,
            check=False,
            cwd=collection,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    noise = re.compile(
        r"^\s*(Collecting|Downloading|Installing|Successfully|Attempting|Uninstalling|Found existing|━|Using cached|Looking in|Processing|WARNING: Location)"
    )
    print("\n".join(line for line in process.stdout.splitlines() if line.strip() and not noise.match(line)))
    if "All targets skipped" in process.stdout or "Running sanity test" not in process.stdout:
        print("sanity tested nothing: every target was skipped.")
        return 1
    return process.returncode


if __name__ == "__main__":
    arguments = [word for word in sys.argv[1:] if word != "--all"]
    if not arguments:
        raise SystemExit(__doc__)
    raise SystemExit(main(pathlib.Path(arguments[0]).absolute(), arguments[1:], "--all" in sys.argv[1:]))
