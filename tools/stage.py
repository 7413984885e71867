"""Copy the checkout's files (tracked, and new ones that git does not ignore) to DESTINATION/ansible_collections/dgxspark/cluster.

ansible-test requires that path, refuses links, and silently skips every target inside a git-ignored folder, so
DESTINATION must be outside any repository.
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main(destination: pathlib.Path) -> pathlib.Path:
    """Stage the files from scratch and return the collection's folder."""
    target = destination.resolve() / "ansible_collections" / "dgxspark" / "cluster"
    if ROOT in target.parents:
        raise SystemExit(f"{destination} is inside the checkout, where ansible-test would skip everything.")
    shutil.rmtree(target, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        source = ROOT / name
        if source.is_file():
            copy = target / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)
    return target


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    print(main(pathlib.Path(sys.argv[1])))
