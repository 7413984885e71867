"""Fetch collections from PyPI's package `ansible` into a folder, so that tests need no Galaxy.

kubernetes.core is what ours needs; the tests also use the stdout callback of ansible.posix.

Usage: fetch_collections.py VERSION DESTINATION, with VERSION of the package `ansible` (12.3.0 carries core 2.19's).
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile
import zipfile

WANTED = ("ansible/posix", "kubernetes/core")


def main(version: str, destination: pathlib.Path) -> None:
    """Download the wheel and unpack the wanted trees."""
    stamp = destination / f".ansible-{version}"
    if stamp.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, f"ansible=={version}"]
        subprocess.run(command, check=True)
        wheel = next(pathlib.Path(folder).glob("ansible-*.whl"))
        prefixes = tuple(f"ansible_collections/{name}/" for name in WANTED)
        with zipfile.ZipFile(wheel) as archive:
            members = [name for name in archive.namelist() if name.startswith(prefixes)]
            archive.extractall(destination, members)
    for name in WANTED:
        if not (destination / "ansible_collections" / name / "MANIFEST.json").is_file():
            raise SystemExit(f"ansible {version} does not carry {name}: choose another version.")
    stamp.touch()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
