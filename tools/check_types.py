"""Run mypy --strict on packages of the collection, from a path where its full name resolves (`ansible_collections.dgxspark.cluster`)."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main(arguments: list[str]) -> int:
    """Link the checkout into a temporary tree and run mypy with the given arguments."""
    with tempfile.TemporaryDirectory(prefix="dgxspark-types-") as folder:
        place = pathlib.Path(folder, "ansible_collections", "dgxspark", "cluster")
        place.parent.mkdir(parents=True)
        place.symlink_to(ROOT)
        command = ["mypy", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", f"{folder}/cache", *arguments]
        return subprocess.run(
            command, check=False, cwd=folder, env={**os.environ, "MYPYPATH": f"{folder}:{ROOT / 'tools'}"}
        ).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
