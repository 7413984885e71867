"""Write the guide of what a rule may ask, docs/docsite/rst/guide_rule_facts.rst, from the document's types.

Usage: python tools/rule_facts.py [--schema]      (--schema: print the document's JSON Schema instead)
"""

from __future__ import annotations

import json
import pathlib
import runpy
import sys
import textwrap
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[1]
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import rule_facts, rule_facts_schema  # noqa: E402

GUIDE = ROOT / "docs" / "docsite" / "rst" / "guide_rule_facts.rst"
WIDTH = 136
HEAD = """.. Copyright (c) 2026, dgxspark.cluster contributors
.. GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
.. SPDX-License-Identifier: GPL-3.0-or-later
.. Made by tools/rule_facts.py of the document's types: run it after a change to them.

.. _ansible_collections.dgxspark.cluster.docsite.guide_rule_facts:

What a rule may ask
===================

A rule's ``when`` is JMESPath over these facts of a plan, such as ``model.hybrid && speculation.on``; its texts may name one in
braces. A fact that is not listed here is refused when the rule is read. How a rule is written:
:ref:`ansible_collections.dgxspark.cluster.docsite.guide_serving`.
"""


def document() -> str:
    """Return the guide."""
    lines = [HEAD.rstrip()]
    for part, text, facts in rule_facts():
        lines += ["", part, "-" * len(part), "", *textwrap.wrap(text.replace("`", "``"), WIDTH)]
        if facts:
            lines += [
                "",
                ".. list-table::",
                "   :header-rows: 1",
                "   :widths: 20 15 65",
                "",
                *row("fact", "type", "meaning"),
            ]
            for name, kind, meaning in facts:
                lines += row(f"``{part}.{name}``", kind, meaning)
    return "\n".join(lines) + "\n"


def row(*cells: str) -> t.Iterator[str]:
    """Yield a table's row."""
    for place, cell in enumerate(cells):
        yield f"   {'* -' if place == 0 else '  -'} {cell}"


def main(arguments: t.Sequence[str]) -> int:
    """Write the guide, or print the schema."""
    if "--schema" in arguments:
        print(json.dumps(rule_facts_schema(), indent=2, ensure_ascii=False))
    else:
        GUIDE.write_text(document(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
