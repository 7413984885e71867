"""Write the guide of all shipped models, docs/docsite/rst/guide_models.rst, and README's sample, from the profiles, as the planner judges them.

Usage: python tools/model_table.py
"""

from __future__ import annotations

import pathlib
import re
import runpy
import textwrap
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[1]
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import (  # noqa: E402
    CATALOGUE_SORTS,
    Choice,
    catalogue,
    catalogue_text,
)

GUIDE = ROOT / "docs" / "docsite" / "rst" / "guide_models.rst"
README = ROOT / "README.md"
SAMPLE = re.compile(r"(?s)(-e sparks=2\n\n```text\n).*?(\n…\n```)")  # what README shows of `models -e sparks=2`
SHOWN = 7  # rows of it
WIDTH = 136
SPARKS = 16  # more than any shipped profile needs
HEAD = """.. Copyright (c) 2026, dgxspark.cluster contributors
.. GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
.. SPDX-License-Identifier: GPL-3.0-or-later
.. Made by tools/model_table.py of the profiles: run it after a change to them.

.. _ansible_collections.dgxspark.cluster.docsite.guide_models:

What Sparks can run
===================

Every shipped profile, as the planner judges it without any Spark. For yours, with your own profiles and measurements:

.. code-block:: console

   $ ansible-playbook dgxspark.cluster.models -e sparks=2
   $ ansible-playbook dgxspark.cluster.models -e sparks=2 -e sort=speed -e dgxspark_models_file=models.html

``sort`` is one of {sorts}. It takes seconds, and asks
no node. With an inventory and without ``sparks``, the same playbook shows what your cluster serves, and what would fit beside it
(:ref:`guide_kubernetes <ansible_collections.dgxspark.cluster.docsite.guide_kubernetes>`). For a model without a profile, see
:ref:`guide_profiles <ansible_collections.dgxspark.cluster.docsite.guide_profiles>`.

How to read the tables
----------------------

* *left*: GiB that stay free on each Spark. Less than the memory guard keeps free is *tight*.
* *1*, *4*, *8*: tokens/s in all, at so many requests at once. A figure with ~ is estimated
  (:ref:`guide_serving <ansible_collections.dgxspark.cluster.docsite.guide_serving>` says how well), the others were measured.
* *verdict*: ``proven`` means that an equal run was measured; ``unproven`` that no rule forbids it, and that no run proves it.
* *source*: the measured run, a row of ``knowledge/evidence``.
"""
COLUMNS = ("profile", "variant", "weights", "left", "1", "4", "8", "context", "verdict", "source")


def escaped(text: str) -> str:
    """Escape a text for reStructuredText."""
    return re.sub(r"([\\*`|_])", r"\\\1", " ".join(text.split()))


def _row(cells: t.Sequence[str]) -> str:
    return "   " + ", ".join(f'"{cell}"' for cell in cells)


def table(choices: t.Sequence[Choice]) -> t.Iterator[str]:
    """Yield a table of variants that fit."""
    yield from ("", ".. csv-table::", "   :header-rows: 1", "", _row(COLUMNS))
    for each in choices:
        profile, variant, _sparks, *rest = catalogue_text.cells(each)
        yield _row([f"``{profile}``", variant, *(escaped(cell) for cell in rest)])


def document() -> str:
    """Return the guide."""
    made = catalogue(SPARKS, "sparks")
    sorts = ", ".join(f"``{name}``" for name in CATALOGUE_SORTS)
    lines = HEAD.format(sorts=sorts).rstrip("\n").splitlines()
    for sparks in sorted({each.sparks for each in made.fits}):
        title = f"On {sparks} Spark" + ("s" if sparks > 1 else "")
        lines += ["", title, "-" * len(title), *table([each for each in made.fits if each.sparks == sparks])]
    if made.others:
        lines += ["", "Refused as they stand", "---------------------", ""]
        for each in made.others:
            lines += textwrap.wrap(
                f"* ``{each.name}``: {escaped(each.why[0])}", WIDTH, subsequent_indent="  ", break_on_hyphens=False
            )
    return "\n".join(lines) + "\n"


def readme() -> str:
    """Return README with the first lines of what `models -e sparks=2` prints."""
    said = catalogue_text.lines(catalogue(2))
    sample = "\n".join(said[: said.index("") + 2 + SHOWN])
    made, times = SAMPLE.subn(lambda found: found[1] + sample + found[2], README.read_text(encoding="utf-8"))
    if times != 1:
        raise ValueError("README.md has no sample of `models -e sparks=2`, or several.")
    return made


if __name__ == "__main__":
    README.write_text(readme(), encoding="utf-8")
    GUIDE.write_text(document(), encoding="utf-8")
