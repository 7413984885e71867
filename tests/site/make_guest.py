"""Lay out build/guest: what comes on top of lab/guest so that a lab's nodes can be real Kubernetes nodes.

Then `DGXSPARK_LAB_GUEST=build/guest DGXSPARK_LAB_MEMORY=2048 tools/with_lab.py 4 pytest tests/site -m long`. It is
tests/site/guest with the programs of the lane that DGXSPARK_LANES names (lane.py).
"""

from __future__ import annotations

import os
import pathlib
import shutil
import sys

sys.path[:0] = os.environ.get("ANSIBLE_COLLECTIONS_PATH", "").split(os.pathsep)
from ansible_collections.dgxspark.cluster.tests.nodes import lane  # noqa: E402 (found by the line above)

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUEST = ROOT / "build" / "guest"
PROGRAMS = ("kubelet", "kubectl")


def main() -> int:
    """Lay it out. Exit status 77: it cannot be built here."""
    if reason := lane.why_not():
        print(reason)
        return 77
    made = lane.Lane()
    made.build(machines=False)
    shutil.rmtree(GUEST, ignore_errors=True)
    shutil.copytree(ROOT / "tests" / "site" / "guest", GUEST)
    place = GUEST / "files/usr/lib/dgxspark-stand-in"
    place.mkdir(parents=True)
    for name in PROGRAMS:
        shutil.copy(made.bin / name, place / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
