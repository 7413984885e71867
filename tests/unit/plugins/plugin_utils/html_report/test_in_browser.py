"""All pages in a real browser, narrow and wide, light and dark: no word is broken inside, nothing is too wide, no text is too small."""

from __future__ import annotations

import pathlib
import re

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report.page import page
from ansible_collections.dgxspark.cluster.tests.support import browser
from ansible_collections.dgxspark.cluster.tests.unit.pages import pages
from ansible_collections.dgxspark.cluster.tests.unit.reports import samples

pytestmark = [pytest.mark.long, pytest.mark.skipif(not browser.can_run(), reason=browser.NOT_RUN)]


# The names along a short cable of the picture have no room for more; the table below it has them, too.
SMALL = re.compile(r"text of [\d.]+ px: cable\d+$")


def unreadable(found: dict[str, list[str]]) -> dict[str, list[str]]:
    left = {name: [each for each in problems if not SMALL.match(each)] for name, problems in found.items()}
    return {name: problems for name, problems in left.items() if problems}


def test_a_page_with_each_fault_is_caught(tmp_path: pathlib.Path) -> None:
    style = "<style>body{margin:0;overflow-wrap:anywhere}td{padding:0}</style>"
    pages = {
        "sound": f"{style}<p>Two Sparks.</p>",
        "broken": f"{style}<p style='width:40px'>Interfaces</p>",
        "wide": f"{style}<p style='width:900px;white-space:nowrap'>one{'&nbsp;more' * 40}</p>",
        "framed": f"{style}<div style='overflow-x:auto'><p style='width:900px;white-space:nowrap'>one{'&nbsp;more' * 40}</p></div>",
        "small": f"{style}<p style='font-size:9px'>caption</p>",
        "pale": f"{style}<div style='background:#fff'><p style='color:#999'>grey on white</p></div>",
        "dark": f"{style}<div style='background:#222'><p style='color:#ddd'>light on dark</p></div>",
    }
    found = browser.measured(tmp_path, pages, (390,))
    assert {name.split()[0] for name, problems in found.items() if problems} == {"broken", "wide", "small", "pale"}


def test_what_only_our_pages_promise_is_caught(tmp_path: pathlib.Path) -> None:
    shade = "overflow-x:auto;background:linear-gradient(to right,#fff 40%,transparent)"
    table = "<table><thead><tr><th>case</th><th>TTFT</th></tr></thead><tbody><tr><th>{}</th><td>\u2013</td></tr></tbody></table>"
    pages = {
        "parted": "<p style='width:3em'>link: 200 Gb/s</p>",
        "together": "<p style='width:3em'>link: 200\xa0Gb/s</p>",
        "patch": f"<body style='background:#eee'><div style='{shade}'>table</div>",
        "shade": f"<body style='background:#fff'><div style='{shade}'>table</div>",
        "stretched": "<p style='display:grid'><code>link.down</code></p>",
        "inline": "<p>link <code>link.down</code></p>",
        "column": table.format("one"),
        "unseen": table.format("TTFT"),
    }
    found = browser.measured(tmp_path, pages, (390,), ours=True)
    kinds = {name.split()[0]: [each.partition(":")[0] for each in problems] for name, problems in found.items()}
    assert {name: problems for name, problems in kinds.items() if problems} == {
        "parted": ["parted"],
        "patch": ["patch"],
        "stretched": ["stretched"],
        "column": ["empty column"],
    }


def test_reports_can_be_read_at_both_widths(tmp_path: pathlib.Path) -> None:
    found = browser.measured(
        tmp_path, {name: page(report) for name, report in samples().items()}, (390, 1440), ours=True
    )
    assert unreadable(found) == {}


def test_all_other_pages_can_be_read_at_both_widths(tmp_path: pathlib.Path) -> None:
    found = browser.measured(tmp_path, pages(), (390, 1440), ours=True)
    assert unreadable(found) == {}
