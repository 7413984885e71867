"""The site of all guides in a real browser, narrow and wide: no page is wider than it, no text is too small or too pale; no link is loose."""

from __future__ import annotations

import html.parser
import itertools
import pathlib
import re
import urllib.parse

import pytest

from ansible_collections.dgxspark.cluster.tests.support import browser
from ansible_collections.dgxspark.cluster.tools import docs

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not browser.can_run(), reason=browser.NOT_RUN),
    pytest.mark.skipif(not docs.PROGRAMS.is_dir(), reason="not run: tools/setup.py docs has not been run"),
]
WIDTHS = (390, 1280)
# A module's page is made by antsibull-docs, as all others are: two stand for all.
MODULES = ("roce_info_module.html", "k8s_dgx_role.html")


class Links(html.parser.HTMLParser):
    """The links of a page, and the places in it to which others may point."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.to: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.places |= {each for each in (given.get("id"), given.get("name")) if each}
        self.to += [each for each in (given.get("href"), given.get("src")) if each]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return docs.build(tmp_path_factory.mktemp("site")).parent


def test_no_link_within_the_site_is_loose(site: pathlib.Path) -> None:
    read = {path: Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    loose = []
    for path, links in read.items():
        for link in links.to:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            at = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if not at.exists() or (at in read and parts.fragment and parts.fragment not in read[at].places):
                loose.append(f"{path.relative_to(site)}: {link}")
    assert not loose, "\n".join(sorted(set(loose))[:40])


def test_the_pages_can_be_read_at_both_widths(site: pathlib.Path, tmp_path: pathlib.Path) -> None:
    named = [site / "index.html", *sorted((site / "docsite").glob("*.html")), *(site / name for name in MODULES)]
    found: dict[str, list[str]] = {}
    for number, some in enumerate(itertools.batched(named, 8)):
        pages = {
            path.stem: re.sub(
                "<head>", f'<head><base href="{path.parent.as_uri()}/">', path.read_text("utf-8"), count=1
            )
            for path in some
        }
        (tmp_path / str(number)).mkdir()
        found |= browser.measured(tmp_path / str(number), pages, WIDTHS)
    # A literal that is longer than a narrow line has to break somewhere. The theme has no dark scheme.
    wrong = {
        name: left
        for name, problems in found.items()
        if name.endswith("light")
        and (left := [each for each in problems if not (" 390 px" in name and each.startswith("broken: "))])
    }
    assert not wrong, "\n".join(f"{name}: {', '.join(problems[:12])}" for name, problems in wrong.items())
