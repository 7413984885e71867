"""Write what an engine's model classes can do (knowledge/model_classes/) from its wheels.

Usage: engine_model_classes.py [--check]. Wheels come by pip and are kept in .cache/oracle; neither torch nor a GPU is
needed. With --check nothing is written and the exit status is 1 where the file differs.
"""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from engine_parsers import model_classes
from engine_parsers.sources import ROOT, NotAvailable


def main(arguments: list[str]) -> int:
    """Write or check the file."""
    if set(arguments) - {"--check"}:
        raise SystemExit(__doc__)
    path = ROOT / "knowledge" / "model_classes" / "sglang.yml"
    try:
        made = model_classes.made()
    except NotAvailable as exc:
        raise SystemExit(f"engine_model_classes: {exc}") from exc
    same = path.is_file() and path.read_text(encoding="utf-8") == made
    if not same and not arguments:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made, encoding="utf-8")
    print(f"{path.relative_to(ROOT)}: {'unchanged' if same else 'differs' if arguments else 'written'}")
    return 1 if arguments and not same else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
