"""Build the documentation site: build/docs/html/index.html. Any warning fails the build, including broken references."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
SITE = ROOT / "docs" / "site"
BUILD = ROOT / "build" / "docs"
COLLECTION = "dgxspark.cluster"
PROGRAMS = ROOT / ".venv" / "docs" / "bin"  # made by `tools/setup.py docs`


def build(place: pathlib.Path = BUILD) -> pathlib.Path:
    """Write the site below `place` and return its first page.

    Raises:
        subprocess.CalledProcessError: antsibull-docs or Sphinx failed, and has printed why.
    """
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections" / "docs"),
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",  # antsibull-docs asks ansible and ansible-doc by their names
    }
    shutil.rmtree(place, ignore_errors=True)
    pages = place / "rst"
    pages.mkdir(parents=True, mode=0o755)
    collect = [PROGRAMS / "antsibull-docs", "--config-file", SITE / "antsibull-docs.cfg", "collection"]
    collect += ["--use-current", "--squash-hierarchy", "--fail-on-error", "--dest-dir", pages, COLLECTION]
    subprocess.run(collect, check=True, env=environment)
    # antsibull-docs copies only text files.
    shutil.copytree(ROOT / "docs" / "images", pages / "docsite" / "images")
    render = [
        PROGRAMS / "sphinx-build",
        "-b",
        "html",
        "-j",
        "auto",
        "-c",
        SITE,
        "-W",
        "--keep-going",
        "-q",
        pages,
        place / "html",
    ]
    subprocess.run(render, check=True, env=environment)
    return place / "html" / "index.html"


if __name__ == "__main__":
    try:
        print(build())
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"docs: {pathlib.Path(error.cmd[0]).name} ended with {error.returncode}") from error
