"""What ansible-doc reads in this collection."""

from __future__ import annotations

import json
import subprocess

from ansible_collections.dgxspark.cluster.tests.unit.owner import BIN


def ansible_doc(*arguments: str) -> dict[str, dict[str, object]]:
    done = subprocess.run([BIN / "ansible-doc", "--json", *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "has errors" not in done.stderr, done.stderr
    return json.loads(done.stdout)
