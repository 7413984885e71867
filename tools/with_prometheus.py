"""Run a command with Debian's `prometheus` and `promtool` in its PATH, without installing them, so no service starts.

Usage: with_prometheus.py COMMAND … . If they are in PATH already, nothing is fetched; if they cannot be fetched, the command runs
without them, and its tests say "not run". Cached in $XDG_CACHE_HOME/dgxspark-prometheus.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import typing as t

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "dgxspark-prometheus"
PROGRAMS = CACHE / "usr" / "bin"


def fetch() -> bool:
    """Unpack the distribution's package into the cache; return whether the programs are there."""
    if (PROGRAMS / "promtool").exists():
        return True
    if not shutil.which("apt-get"):
        return False
    CACHE.mkdir(parents=True, exist_ok=True)
    for before in ([], [["apt-get", "-q", "update"]]):
        for command in [*before, ["apt-get", "-q", "download", "prometheus"]]:
            subprocess.run(command, cwd=CACHE, check=False, capture_output=True)
        if found := sorted(CACHE.glob("prometheus_*.deb")):
            unpacked = subprocess.run(["dpkg-deb", "-x", found[-1], CACHE], check=False, capture_output=True)
            found[-1].unlink()
            return unpacked.returncode == 0
    return False


def main(command: list[str]) -> t.NoReturn:
    """Replace this process with the command."""
    path = os.environ["PATH"]
    if not (shutil.which("promtool") and shutil.which("prometheus")) and fetch():
        path = f"{path}{os.pathsep}{PROGRAMS}"
    os.execvpe(command[0], command, {**os.environ, "PATH": path})  # exec, so that signals reach the command


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main(sys.argv[1:])
