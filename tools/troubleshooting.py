"""Write the guide that explains log lines: docs/docsite/rst/guide_troubleshooting.rst, from the signatures.

Usage: python tools/troubleshooting.py
"""

from __future__ import annotations

import pathlib
import re
import runpy
import textwrap
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[1]
runpy.run_path(str(ROOT / "tools" / "own_collection.py"))

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge  # noqa: E402

GUIDE = ROOT / "docs" / "docsite" / "rst" / "guide_troubleshooting.rst"
WIDTH, LINE = 136, 126
SECTIONS = {
    "nccl": "NCCL and the transport",
    "sglang": "SGLang",
    "vllm": "vLLM",
    "engine": "Engines and CUDA",
    "torch": "PyTorch",
    "python": "Any Python program",
    "rank": "The ranks' supervisor",
    "k3s": "K3s and Kubernetes",
    "kernel": "The kernel",
    "firmware": "Firmware and hardware",
}
HEAD = """.. Copyright (c) 2026, dgxspark.cluster contributors
.. GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
.. SPDX-License-Identifier: GPL-3.0-or-later
.. Made by tools/troubleshooting.py of knowledge/signatures: change it there.

.. _ansible_collections.dgxspark.cluster.docsite.guide_troubleshooting:

Troubleshooting by the line that you see
========================================

These lines are known. ``explain`` finds them in a log, says which of several is the likely cause of the others, and needs no cluster:

.. code-block:: console

   $ ansible-playbook dgxspark.cluster.explain -e log=rank0.log

``doctor`` looks for them on all nodes (:ref:`guide_doctor <ansible_collections.dgxspark.cluster.docsite.guide_doctor>`).

.. contents::
   :local:
"""


def escaped(text: str) -> str:
    """Escape a text for reStructuredText."""
    return re.sub(r"([\\*`|_])", r"\\\1", " ".join(text.split()))


def shown(entry: t.Mapping[str, t.Any]) -> list[str]:
    """Format one signature: its line, its meaning, and its remedy."""
    line = " ".join(entry["example"].split())
    said = f"**Harmless.** {escaped(entry['cause'])}" if entry["benign"] else escaped(entry["cause"])
    return [
        "",
        ".. code-block:: text",
        "",
        *(f"   {part}" for part in textwrap.wrap(line, LINE, break_on_hyphens=False)),
        "",
        *textwrap.wrap(f"``{entry['id']}``: {said}", WIDTH),
        *textwrap.wrap(f"→ {escaped(entry['remedy'])}", WIDTH),
    ]


def document() -> str:
    """Return the guide."""
    entries = list(knowledge.load("signatures").values())
    if unnamed := {entry["component"] for entry in entries} - set(SECTIONS):
        raise SystemExit(f"SECTIONS has no title for {', '.join(sorted(unnamed))}")
    lines = [HEAD.rstrip("\n")]
    for component, title in SECTIONS.items():
        mine = [entry for entry in entries if entry["component"] == component]
        lines += ["", title, "-" * len(title)]
        for entry in sorted(mine, key=lambda entry: (entry["benign"], entry["id"])):
            lines += shown(entry)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    GUIDE.write_text(document(), encoding="utf-8")
