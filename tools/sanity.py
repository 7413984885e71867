"""Run ansible-test sanity over a staged copy, and fail where it tested nothing.

Usage: sanity.py VENV [TEST …], the environment whose ansible-test is run, and the tests (all of them where none is named).
Everything it needs lies in a temporary folder, its
HOME too: nothing is left behind.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import stage


def main(venv: pathlib.Path, tests: list[str]) -> int:
    """Stage, run, judge."""
    python = venv / "bin" / "python"
    code = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    version = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="dgxspark-sanity-") as folder:
        home = pathlib.Path(folder, "home")
        cache = home / ".ansible" / "test" / "cache"
        cache.mkdir(parents=True)
        for release in ("24_2", "25_2"):
            shutil.copy(pathlib.Path(__file__).with_name("get_pip_stand_in.py"), cache / f"get_pip_{release}.py")
        collection = stage.main(pathlib.Path(folder, "staged"))
        # pyenv's shims look like Pythons of versions that are not there.
        path = [p for p in os.environ["PATH"].split(os.pathsep) if ".pyenv/shims" not in p]
        environment = {
            **os.environ,
            "HOME": str(home),
            "PATH": os.pathsep.join([str(venv / "bin"), *path]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [str(venv / "bin" / "ansible-test"), "sanity", "--local", "--python", version, "--color", "no"]
        command += [word for test in tests for word in ("--test", test)]
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
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    raise SystemExit(main(pathlib.Path(sys.argv[1]).absolute(), sys.argv[2:]))
