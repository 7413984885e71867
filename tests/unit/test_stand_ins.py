"""What each stand-in's head must say: whom it imitates, which version of it, which parts, and what is left out."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STAND_INS = sorted(path for path in (ROOT / "tests/stand_ins").iterdir() if path.is_file() and path.name[0] not in "._")
HEAD = re.compile(r'(?:#![^\n]*\n)?(?:"""(.*?)"""|((?://[^\n]*\n)+))', re.DOTALL)
# Standards have numbers in place of versions; DGX OS and systemd count in whole ones.
VERSION = re.compile(r"\bv?\d+\.\d+|\bRFC \d+|\bPEP \d+|\bsystemd \d+")
LEFT_OUT = re.compile(r"Not\s+imitated|does not imitate|It has no |It is no |No CDI|is refused here|others are refused")


@pytest.mark.parametrize("path", STAND_INS, ids=lambda path: path.name)
def test_a_stand_in_s_head_says_what_it_imitates_in_which_version_and_what_not(path: pathlib.Path) -> None:
    found = HEAD.match(path.read_text(encoding="utf-8"))
    assert found, "it begins with no docstring or comment"
    head = found[1] or found[2]
    assert "stand-in" in head.lower()
    imitated = re.search(r"Imitated[:,](.+)", head, re.DOTALL)
    assert imitated, "name the upstream program and the parts of it: `Imitated: …`"
    assert VERSION.search(imitated[1]), "name the version of what is imitated"
    assert LEFT_OUT.search(head), "say what is not imitated"
