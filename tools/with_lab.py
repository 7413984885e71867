"""Run a command with a virtual lab of its own, and always take the lab down afterwards.

Usage: with_lab.py NODES COMMAND … . DGXSPARK_LAB_NAME, DGXSPARK_LAB_PORT and DGXSPARK_LAB_CACHE are passed on; KEEP=1
leaves the lab up.
"""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

LAB = pathlib.Path(__file__).resolve().parent.parent / "lab" / "lab"


def main(nodes: str, command: list[str]) -> int:
    """Run lab up, the command, lab down; return the command's exit status."""
    # CI ends a run with SIGTERM; the lab's virtual machines must not outlive it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        for words in (["install-deps"], ["up", "--nodes", nodes]):
            if code := subprocess.run([sys.executable, LAB, *words], check=False).returncode:
                return code
        return subprocess.run(command, check=False).returncode
    finally:
        if not os.environ.get("KEEP"):
            subprocess.run([sys.executable, LAB, "down"], check=False)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    raise SystemExit(main(sys.argv[1], sys.argv[2:]))
