"""Links and pictures of README and the other texts lead somewhere; external ones are listed, and never fetched here."""

from __future__ import annotations

import pathlib
import re

import pytest

from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT
from ansible_collections.dgxspark.cluster.tools import links

MARKDOWN = [path for path in links.texts() if path.suffix == ".md"]
PICTURE_BYTES = 200_000


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_link_leads_to_a_file_or_a_heading(path: pathlib.Path) -> None:
    assert links.broken(path) == []


def test_a_link_that_leads_to_nothing_is_found(tmp_path: pathlib.Path) -> None:
    (tmp_path / "there.md").write_text("# What `it` is, and why\n")
    text = "[a](there.md) [b](there.md#what-it-is-and-why) [c](gone.md) [d](there.md#gone) ![e](gone.png) `[f](code.md)` [g](#self)\n# Self\n"
    (tmp_path / "text.md").write_text(text)
    assert links.broken(tmp_path / "text.md") == ["gone.md", "there.md#gone", "gone.png"]


def test_links_that_lead_outside_are_listed() -> None:
    assert links.LISTED.read_text(encoding="utf-8").splitlines() == links.external(), "run tools/links.py"


def test_pictures_are_small_and_shown() -> None:
    pictures = sorted((ROOT / "docs" / "images").iterdir())
    shown = "\n".join(path.read_text(encoding="utf-8") for path in links.texts())
    assert pictures
    for picture in pictures:
        assert picture.stat().st_size < PICTURE_BYTES, picture.name
        assert f"images/{picture.name}" in shown, f"{picture.name}: nothing shows it"
    assert re.search(r"!\[[^\]]+\]\(docs/images/report\.png\)", (ROOT / "README.md").read_text(encoding="utf-8"))


def test_what_is_called_by_make_is_there() -> None:
    """README's and the workflows' `make` targets."""
    made = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))
    texts = [ROOT / "README.md", *sorted((ROOT / ".github" / "workflows").glob("*.yml"))]
    called = {
        name for path in texts for name in re.findall(r"(?<![\w])make ([a-z-]+)", path.read_text(encoding="utf-8"))
    }
    assert {"test", "test-real", "demo", "docs"} <= called & made
    typed = re.findall(r"(?m)^(?: {4}| {8}run: .*?)\s*make ([a-z-]+)", "\n".join(p.read_text("utf-8") for p in texts))
    assert typed and set(typed) <= made
