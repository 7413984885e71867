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


def test_reports_can_be_read_at_both_widths(tmp_path: pathlib.Path) -> None:
    found = browser.measured(tmp_path, {name: page(report) for name, report in samples().items()}, (390, 1440))
    assert unreadable(found) == {}


def test_all_other_pages_can_be_read_at_both_widths(tmp_path: pathlib.Path) -> None:
    found = browser.measured(tmp_path, pages(), (390, 1440))
    assert unreadable(found) == {}
