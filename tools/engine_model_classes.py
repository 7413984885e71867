"""Write the abilities of the engines' model classes (knowledge/model_classes/) from their wheels.

Usage: engine_model_classes.py [--check] [ENGINE …]. Wheels come from pip and are cached in .cache/oracle; neither torch nor a GPU
is needed. With --check nothing is written and the exit status is 1 if a file differs.
"""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from engine_parsers import model_classes
from engine_parsers.sources import ROOT, NotAvailable


def main(arguments: list[str]) -> int:
    """Write or check the requested files."""
    check = "--check" in arguments
    named = [argument for argument in arguments if argument != "--check"]
    if set(named) - set(model_classes.FACTS):
        raise SystemExit(__doc__)
    differ = 0
    for engine in named or model_classes.FACTS:
        path = ROOT / "knowledge" / "model_classes" / f"{engine}.yml"
        try:
            made = model_classes.made(engine)
        except NotAvailable as exc:
            raise SystemExit(f"engine_model_classes: {exc}") from exc
        same = path.is_file() and path.read_text(encoding="utf-8") == made
        differ += not same
        if not same and not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {'unchanged' if same else 'differs' if check else 'written'}")
    return 1 if check and differ else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
