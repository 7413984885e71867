"""Playbooks of this checkout, run from an owner's folder."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

from ansible_collections.dgxspark.cluster.tests.unit.owner import PROGRAM, ROOT


def collections_path() -> str:
    """Return the folder in which this checkout is ansible_collections/dgxspark/cluster, for separate processes."""
    place = next(p for p in sys.path if (pathlib.Path(p) / "ansible_collections" / "dgxspark" / "cluster").is_dir())
    return os.pathsep.join(filter(None, [place, os.environ.get("ANSIBLE_COLLECTIONS_PATH")]))


def play(folder: pathlib.Path, playbook: str, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run a playbook of the checkout from an owner's folder; return exit status and output."""
    done = started(folder, playbook, *arguments, **environment)
    output = done.stdout + done.stderr
    assert "Traceback" not in output
    return done.returncode, output


def started(
    folder: pathlib.Path, playbook: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a playbook of the checkout from an owner's folder."""
    collection = folder / "collections" / "ansible_collections" / "dgxspark"
    collection.mkdir(parents=True, exist_ok=True)
    if not (collection / "cluster").exists():
        (collection / "cluster").symlink_to(ROOT)
    (folder / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")
    return subprocess.run(
        [str(PROGRAM), str(ROOT / "playbooks" / playbook), *arguments],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"),
            "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            **environment,
        },
    )
