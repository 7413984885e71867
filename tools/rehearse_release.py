"""Rehearse a release of the last commit in a copy: all that its tag would do, without a tag, a push or a change to this checkout.

The changelog is made of its fragments and committed (in the copy), the archive built and its checksum checked, Galaxy's importer asked
if it is installed beside this Python (pip install galaxy-importer), and the archive installed elsewhere and asked. `make test`, which
the tag's workflow runs too, is not repeated here. Exit status 0 if nothing failed. Usage: rehearse_release.py DESTINATION
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import typing as t

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(sys.executable).parent


class Failed(Exception):
    """A step that failed, with what it printed."""


def run(*words: object, at: pathlib.Path, **more: str) -> str:
    """Run a command; return what it printed. Raises Failed."""
    env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "ANSIBLE_NOCOLOR": "1", **more}
    env.pop("ANSIBLE_CONFIG", None)
    command = [str(word) for word in words]
    done = subprocess.run(command, cwd=at, check=False, capture_output=True, text=True, env=env)
    if done.returncode:
        raise Failed(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout + done.stderr


def changelog(copy: pathlib.Path, version: str) -> str:
    """Make the changelog of the fragments, and commit it in the copy."""
    if not (BIN / "antsibull-changelog").exists():
        raise Failed("antsibull-changelog is not installed beside this Python.")
    left = len(list((copy / "changelogs" / "fragments").glob("*.yml")))
    run(BIN / "antsibull-changelog", "release", at=copy)
    run("git", "add", "-A", at=copy)
    who = ("-c", "user.name=rehearsal", "-c", "user.email=rehearsal@localhost")
    run("git", *who, "commit", "-qm", f"Release {version}", at=copy)
    return f"{left} fragments, {len((copy / 'CHANGELOG.rst').read_text(encoding='utf-8').splitlines())} lines of CHANGELOG.rst"


def importer(archive: pathlib.Path) -> str:
    """Ask Galaxy's importer about the archive; Failed for an error or a warning that it has."""
    if importlib.util.find_spec("galaxy_importer") is None:
        return "not run: galaxy-importer is not installed beside this Python"
    with tempfile.TemporaryDirectory() as empty:
        # Its ansible-lint has three minutes for all files, which a loaded machine exceeds; `make test-more` runs it, stricter.
        config = pathlib.Path(empty, "importer.cfg")
        config.write_text("[galaxy-importer]\nRUN_ANSIBLE_LINT = False\n", encoding="utf-8")
        chosen = {"GALAXY_IMPORTER_CONFIG": str(config)}
        told = run(sys.executable, "-m", "galaxy_importer.main", archive, at=pathlib.Path(empty), **chosen)
    bad = [line for line in told.splitlines() if line.startswith(("ERROR", "WARNING"))]
    if bad:
        raise Failed("\n".join(bad))
    return "no error, no warning (without its ansible-lint)"


def asked(archive: pathlib.Path, place: pathlib.Path) -> str:
    """Install the archive elsewhere, and ask it what two Sparks can run."""
    # What is installed elsewhere on this machine does not count.
    alone = {"ANSIBLE_COLLECTIONS_PATH": str(place)}
    run(BIN / "ansible-galaxy", "collection", "install", "--no-deps", "-p", place, archive, at=place, **alone)
    more = {"ANSIBLE_COLLECTIONS_PATH": str(place), "ANSIBLE_STDOUT_CALLBACK": "dgxspark.cluster.answer"}
    told = run(BIN / "ansible-playbook", "dgxspark.cluster.models", "-e", "sparks=2", at=place, **more)
    found = [line for line in told.splitlines() if "configurations fit 2 Sparks" in line]
    if not found:
        raise Failed(told[-2000:])
    return found[0]


def main(destination: pathlib.Path) -> int:
    """Take the steps; say what each did."""
    destination.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        copy = pathlib.Path(made, "ansible_collections", "dgxspark", "cluster")
        run("git", "clone", "-q", ROOT, copy, at=ROOT)
        version = str(yaml.safe_load((copy / "galaxy.yml").read_text(encoding="utf-8"))["version"])
        elsewhere = pathlib.Path(made, "elsewhere")
        elsewhere.mkdir()
        archive = destination / f"dgxspark-cluster-{version}.tar.gz"
        steps: list[tuple[str, t.Callable[[], str]]] = [
            ("changelog", lambda: changelog(copy, version)),
            ("build", lambda: run(sys.executable, "tools/release.py", version, destination, at=copy).splitlines()[0]),
            ("checksum", lambda: run("sha256sum", "-c", "SHA256SUMS", at=destination).strip()),
            ("importer", lambda: importer(archive)),
            ("installed", lambda: asked(archive, elsewhere)),
        ]
        for name, step in steps:
            try:
                print(f"{name:10} {step()}", flush=True)
            except Failed as why:
                print(f"{name:10} FAILED: {why}")
                return 1
        shutil.copy(copy / "CHANGELOG.rst", destination)
    print(
        f"Release {version} would be {archive}, with SHA256SUMS and CHANGELOG.rst beside it. Nothing was tagged or pushed."
    )
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
