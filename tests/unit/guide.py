"""What the guides print: their code blocks, and the commands in these."""

from __future__ import annotations

import pathlib
import re

GUIDES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "docsite" / "rst"


def blocks(name: str, language: str) -> list[str]:
    """Return the code blocks of a guide in a language."""
    text = (GUIDES / f"{name}.rst").read_text(encoding="utf-8")
    found = re.findall(rf"\.\. code-block:: {language}\n\n((?:   .*\n|\n)+)", text)
    return [re.sub(r"(?m)^   ", "", block) for block in found]


def commands(name: str, *, prompt: bool = True) -> list[str]:
    """Return the commands of a guide, each in one line and without its prompt; `prompt`: only those that have one."""
    lines = [line.strip() for block in blocks(name, "console") for line in block.replace("\\\n", "").splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ") or (line and not prompt)]
