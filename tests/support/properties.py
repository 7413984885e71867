"""How many examples of a property are tried: all of them, or the share that `make test` takes (tools/run_tests.py)."""

from __future__ import annotations

import os

SHARE = float(os.environ.get("DGXSPARK_EXAMPLES", "1"))
FEWEST = 5


def examples(most: int) -> int:
    """Return how many examples to try of a property that has `most` of them in `make test-more`."""
    return max(min(FEWEST, most), round(most * SHARE))
