"""Write the engines' flag tables (knowledge/engines/) from their real parsers.

Usage: engine_flags.py [--check] [ENGINE [VERSION …]]. Without arguments: every version that the collection ships. A version that
it does not ship yet is added. Wheels come from pip and are cached in .cache/oracle; neither torch nor a GPU is needed. With
--check nothing is written and the exit status is 1 if a table differs.
"""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from engine_parsers import tables
from engine_parsers.sources import ROOT, NotAvailable


def main(arguments: list[str]) -> int:
    """Write or check the requested tables."""
    check = "--check" in arguments
    named = [argument for argument in arguments if argument != "--check"]
    if named and (named[0] not in tables.VERSIONS or named[0].startswith("-")):
        raise SystemExit(__doc__)
    wanted = {named[0]: tuple(named[1:]) or tables.VERSIONS[named[0]]} if named else tables.VERSIONS
    differ = 0
    for engine, versions in wanted.items():
        path, held = tables.path(engine), tables.shipped(engine)
        for version in versions:
            try:
                made = tables.entry(engine, version)
            except NotAvailable as exc:
                raise SystemExit(f"engine_flags: {exc}") from exc
            found = "new" if version not in held else "unchanged" if tables.same(held[version], made) else "differs"
            held[version] = made
            print(f"{engine} {version}: {found}", flush=True)
        text = tables.text(held)
        same = text == path.read_text(encoding="utf-8")
        differ += not same
        if not same and not check:
            path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {'unchanged' if same else 'differs' if check else 'written'}")
    return 1 if check and differ else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
