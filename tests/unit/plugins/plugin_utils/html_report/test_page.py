"""The page: complete, safe, self-contained; and in a real browser neither too wide nor too dark to read."""

from __future__ import annotations

import html
import html.parser
import json
import pathlib
import re
import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.dgxspark.cluster.plugins.filter import report_html
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric import settings
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report import frame
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report.page import matrices, open_reasons, page
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report.picture import picture
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report.plot import groups, plot
from ansible_collections.dgxspark.cluster.tests.support import browser
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import make
from ansible_collections.dgxspark.cluster.tests.unit.reports import GIB, curve, everything, report_of, samples
from ansible_collections.dgxspark.cluster.tests.unit.verify_inputs import Cluster, Plain

SAMPLES = samples()
NAMES = [f"spark{number}" for number in range(1, 5)]
VOID = {"meta", "br", "hr", "img", "input", "link", "col"}


class Reader(html.parser.HTMLParser):
    """Reads a page's text and attributes, and checks that every element is closed in order."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.attributes: list[tuple[str, str, str]] = []
        self.tags: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text += data


def test_a_figure_stays_with_its_unit_and_a_command_as_it_is_typed() -> None:
    told = frame.commands("At most 16 GiB; `sleep 5 s` waits 5 s <b>")
    assert frame.together(told) == "At most 16\xa0GiB; <code>sleep 5 s</code> waits 5\xa0s &lt;b&gt;"
    assert isinstance(frame.together(told), type(told)), "it is not escaped twice"
    assert frame.together("4 stacks, 4 s") == "4 stacks, 4\xa0s"


def test_what_the_verdict_rests_on_stands_first() -> None:
    incomplete, failed = page(SAMPLES["incomplete"]), page(SAMPLES["failed"])
    assert incomplete.index('id="open"') < incomplete.index('id="warnings"') < incomplete.index('id="steps"')
    assert failed.index('id="causes"') < failed.index('id="steps"') < failed.index('id="open"')


def test_what_passed_is_folded_where_something_did_not() -> None:
    def step(name: str) -> str:
        return page(SAMPLES[name]).partition('<details id="step-link"')[2].partition("<details id=")[0]

    shown, _fold, folded = step("failed").partition("<summary>39 passed</summary>")
    assert shown.startswith(" open") and shown.count("<li") == 1 and folded.count("<li") == 39
    assert "<details" not in step("passed") and step("passed").count("<li") == 40


def words(text: str) -> str:
    return " ".join(text.replace("`", "").split())


@pytest.mark.parametrize("name", SAMPLES)
def test_every_step_finding_reason_and_version_is_on_the_page(name: str) -> None:
    report = SAMPLES[name]
    shown = words(Reader(page(report)).text)
    assert report["headline"].partition(": ")[2] in shown
    for step in report["steps"]:
        assert step["id"] in shown
        assert step["title"] in shown
        for result in step["results"]:
            assert words(result["subject"]) in shown
            assert words(result["message"]) in shown
            assert (result["cause"] or "") in shown
    for cause in report["causes"] + report["warnings"]:
        for key in ("id", "where", "message", "remedy"):
            assert words(cause[key]) in shown
    for cause in report["causes"]:
        assert all(words(line) in shown for line in [*cause["seen"], *cause["consequences"]])
    for finding in report["log_findings"]:
        assert finding["id"] in shown
        assert words(finding["cause"]) in shown
        for line in () if finding["benign"] else [finding["remedy"], *finding["source"], finding["seen"][0]["excerpt"]]:
            assert words(line) in shown
    for reason in open_reasons(report):
        assert words(reason["message"]) in shown
    for host in report["hosts"]:
        assert host["name"] in shown
        for value in (host["kernel"], host["reason"], *host["drivers"], *host["firmware"]):
            assert words(value or "") in shown
        for function in host["functions"]:
            assert all(vf["address"] in shown for vf in function["vfs"])
    for version in report["versions"].values():
        assert version in shown
    assert report["started"][:10] in shown


@pytest.mark.parametrize("name", SAMPLES)
def test_a_page_asks_nobody_for_anything(name: str) -> None:
    source = page(SAMPLES[name])
    read = Reader(source)
    assert not {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
        "image",
        "use",
        "foreignobject",
    } & {tag.lower() for tag in read.tags}
    for _tag, name_, value in read.attributes:
        assert name_ not in ("src", "srcset", "background", "action", "data", "poster", "xlink:href")
        assert not name_.startswith("on")
        if name_ == "href":
            assert value.startswith("#")
        assert "url(" not in value
    style = "".join(re.findall(r"<style>(.*?)</style>", source, re.DOTALL))
    assert style
    assert "url(" not in style
    assert "@import" not in style
    assert "default-src 'none'" in source
    assert not re.search(r"https?://", source.replace("http://10.0.0.1", ""))


@pytest.mark.parametrize("name", SAMPLES)
def test_links_on_the_page_lead_somewhere(name: str) -> None:
    read = Reader(page(SAMPLES[name]))
    ids = [value for _tag, attribute, value in read.attributes if attribute == "id"]
    assert len(ids) == len(set(ids))
    assert {value[1:] for _tag, attribute, value in read.attributes if attribute == "href"} <= set(ids)


EVIL = "<script>alert(1)</script>\"'><img src=x onerror=y>`<b>`"


def spoilt(value: t.Any, key: str = "") -> t.Any:
    """A report in which every text that may come from a node or a server is hostile."""
    if isinstance(value, dict):
        return {k: spoilt(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [spoilt(item, key) for item in value]
    free = ("message", "remedy", "reason", "kernel", "netdev", "hca", "address", "purpose", "where", "subject", "title")
    return EVIL if key in free and isinstance(value, str) else value


@pytest.mark.parametrize("name", ["failed", "incomplete", "passed"])
def test_what_a_node_or_a_server_says_stays_text(name: str) -> None:
    read = Reader(page(spoilt(SAMPLES[name])))
    assert "script" not in read.tags
    assert "img" not in read.tags
    assert "<script>alert(1)</script>" in read.text


def test_the_verdict_and_a_suspicion_are_said_in_words() -> None:
    text = Reader(page(SAMPLES["failed"])).text
    assert "Failed" in text
    assert "Why it failed" in text
    alone = report_of(Cluster(4), nccl={**everything(NAMES, 9.8)["nccl"], "transport": None})
    assert "suspected" in Reader(page(alone)).text
    assert "Passed" in Reader(page(SAMPLES["passed"])).text
    assert "Why it failed" not in Reader(page(SAMPLES["passed"])).text


def test_what_is_required_comes_first_among_what_was_not_shown() -> None:
    reasons = open_reasons(SAMPLES["incomplete"])
    needed = [reason["needed"] for reason in reasons]
    assert needed == sorted(needed, reverse=True)
    (left,) = open_reasons(SAMPLES["fabric"])
    assert left["steps"] == ["nccl", "pod", "tokens", "wire"], "a reason of several steps is said once"
    (silent,) = [reason for reason in reasons if reason["message"].startswith("spark3 was not seen")]
    assert silent["steps"] == ["link", "mtu", "arp", "gid", "rdma"]
    counted = [each for step in SAMPLES["incomplete"]["steps"] for each in step["results"]]
    assert silent["count"] == sum(each["message"] == silent["message"] for each in counted)
    assert not any(reason["needed"] for reason in open_reasons(SAMPLES["fabric"]))


def test_the_matrix_has_the_slowest_vf_of_each_pair_and_way() -> None:
    cluster = Cluster(3)
    cluster.rdma["write/spark1:p0f1v1>spark3:p0f1v1"] = {"figures": {"gbps": 51.0}}
    zero, one = matrices(report_of(cluster, "full"))
    assert (zero["function"], one["function"]) == ("f0", "f1")
    assert [cell and cell["text"] for cell in one["rows"][0][1]] == ["", "106", "51"]
    assert [cell and cell["failed"] for cell in one["rows"][0][1]] == ["", False, True]
    assert [cell and cell["text"] for cell in one["rows"][2][1]] == ["106", "106", ""]


@pytest.mark.parametrize(("topology", "hosts"), [("direct", 2), ("triangle", 3), ("ring", 6), ("switch", 8)])
def test_the_picture_ties_every_function_to_its_segment(topology: str, hosts: int) -> None:
    plan = make(hosts, {"topology": topology})
    functions = [
        {"name": name, "functions": host["functions"], "status": "seen"} for name, host in plan["hosts"].items()
    ]
    for host in functions:
        for function in host["functions"]:
            for vf in function["vfs"]:
                vf |= {"gid_index": 3, "place": "host"}
    drawn = picture({"hosts": functions, "topology": topology, "steps": []})
    assert topology in settings.topologies()
    count = sum(len(host["functions"]) for host in functions)
    assert drawn.count('class="tie"') == count
    segments = {function["segment"] for host in functions for function in host["functions"]}
    assert drawn.count('class="rail"') == len(segments)
    assert all(f">{segment}<" in drawn for segment in segments)
    assert drawn.count('class="chip ok"') == sum(len(f["vfs"]) for host in functions for f in host["functions"])


def test_a_broken_function_is_broken_in_the_picture() -> None:
    drawn = picture(SAMPLES["failed"])
    assert drawn.count('class="tie fail"') == 1
    assert 'class="host unseen"' in picture(SAMPLES["incomplete"])
    assert 'class="chip pod"' in picture(SAMPLES["pods"])


def test_plots_are_one_for_each_set_of_bands() -> None:
    assert len(groups(SAMPLES["passed"])) == 1
    ring = {**SAMPLES["passed"], "bands": ring_bands(), "bandwidth": SAMPLES["passed"]["bandwidth"]}
    assert [len(curves) for _bands, curves in groups(ring)] == [2, 1]


def ring_bands() -> list[Plain]:
    entries = knowledge.load("bands")
    return [
        {**entries[f"spark.busbw.triangle.{name.replace('_', '-')}"], "operation": name}
        for name in ("all_reduce", "all_gather")
    ]


@pytest.mark.parametrize("peak", [0.001, 22.0, 48.0])
def test_every_point_lies_within_the_plot(peak: float) -> None:
    report = SAMPLES["passed"]
    (bands, _curves), *_more = groups(report)
    points = [*curve("all_reduce", peak), {"operation": "all_reduce", "bytes": 16 * GIB, "busbw": peak, "time_us": 1.0}]
    drawn = plot(bands, [{"step": "nccl", "operation": "all_reduce", "points": points}], 342, 230)
    places = [tuple(map(float, pair.split(","))) for pair in re.findall(r'points="([^"]+)"', drawn)[0].split()]
    assert len(places) == len(points)
    assert all(0 <= x <= 342 and 0 <= y <= 230 for x, y in places)
    assert [x for x, _y in places] == sorted(x for x, _y in places)
    assert "not run" not in drawn


def test_without_figures_the_plot_says_not_run() -> None:
    (bands, curves), *_more = groups(SAMPLES["fabric"])
    drawn = plot(bands, curves, 342, 230)
    assert ">not run<" in drawn
    assert "polyline" not in drawn


@pytest.mark.parametrize(
    ("report", "told"),
    [
        (None, "'NoneType'"),
        ({"schema": "other/1"}, "'other/1'"),
        ({"schema": "dgxspark.cluster/fabric-report/1"}, "the report is damaged: 'headline'"),
        ({**SAMPLES["passed"], "hosts": [{}]}, "the report is damaged"),
    ],
)
def test_what_is_no_report_is_one_clear_error(report: t.Any, told: str) -> None:
    with pytest.raises(CollectionError, match=re.escape(told)):
        page(report)


def test_the_filter_returns_the_page() -> None:
    made = report_html.FilterModule().filters()["report_html"]
    assert made(SAMPLES["quick"]) == page(SAMPLES["quick"])
    with pytest.raises(AnsibleFilterError, match="report_html: this is not a report"):
        made({})


# --- in a browser -------------------------------------------------------------------------------------------------------

POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
# Reports the widest element, and what is cut off, once the page has loaded.
MEASURE = """<script>addEventListener("load", () => {
  const wide = [...document.querySelectorAll("body *")].filter(e => !e.closest(".scroll") && !e.closest("svg")
    && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + "." + e.className);
  const small = [...document.querySelectorAll("svg text")].filter(e => e.getBoundingClientRect().width > 0
    && e.getBoundingClientRect().height < 9).map(e => e.textContent);
  const outside = [...document.querySelectorAll("svg text")].filter(e => { const r = e.getBoundingClientRect(),
    s = e.closest("svg").getBoundingClientRect(); return r.width && (r.left < s.left - 1 || r.right > s.right + 1); })
    .map(e => e.textContent);
  parent.postMessage({name: location.search.slice(1), width: document.documentElement.scrollWidth, inner: innerWidth, wide, small, outside,
    shown: [...document.querySelectorAll("svg")].filter(e => e.getBoundingClientRect().width).length,
    loaded: performance.getEntriesByType("resource").map(e => e.name)}, "*");
});</script>"""
# A headless window is never narrower than 500 pixels; a frame in it can be.
FRAMES = """<!doctype html><title>{}</title><script>const found = {}; onmessage = e => {
  found[e.data.name] = e.data; document.title = JSON.stringify(found); };</script>"""
FRAME = '<iframe src="%s?%s" style="border:0;width:%dpx;height:2000px"></iframe>'

in_browser = pytest.mark.skipif(not browser.can_run(), reason=browser.NOT_RUN)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Plain]:
    """Every page in frames of a phone's and a desktop's width, measured by one browser."""
    folder = tmp_path_factory.mktemp("pages")
    frames = FRAMES
    for number, name in enumerate(SAMPLES):
        # Details opened, since what is collapsed must fit as well.
        source = POLICY.sub(MEASURE, page(SAMPLES[name])).replace("<details", "<details open")
        (folder / f"{number}.html").write_text(source, encoding="utf-8")
        for width in (390, 1280):
            frames += FRAME % (f"{number}.html", f"{number}-{width}", width)
    (folder / "frames.html").write_text(frames, encoding="utf-8")
    place = (folder / "frames.html").as_uri()
    dom = browser.run(folder, "--window-size=1400,2100", "--virtual-time-budget=20000", "--dump-dom", place)
    title = re.search(r"<title>(.*?)</title>", dom, re.DOTALL)
    assert title
    return t.cast(dict[str, Plain], json.loads(html.unescape(title[1])))


@in_browser
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", SAMPLES)
def test_nothing_is_too_wide_too_small_or_cut_off(measured: dict[str, Plain], name: str, width: int) -> None:
    found = measured[f"{list(SAMPLES).index(name)}-{width}"]
    assert found["inner"] == width
    assert found["width"] <= width
    assert found["wide"] == []
    assert found["small"] == []
    assert found["outside"] == []
    assert found["loaded"] == []
    assert found["shown"] >= 1


@in_browser
def test_the_page_as_it_is_lets_no_script_run(tmp_path: pathlib.Path) -> None:
    source = page(SAMPLES["passed"]).replace("</body>", MEASURE + "</body>")
    (tmp_path / "page.html").write_text(source, encoding="utf-8")
    dom = browser.run(tmp_path, "--window-size=390,2000", "--dump-dom", (tmp_path / "page.html").as_uri())
    assert "<title>Passed: fabric report, 2026-11-21</title>" in dom


@in_browser
@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_can_be_drawn_in_both_schemes(tmp_path: pathlib.Path, scheme: str, width: int) -> None:
    (tmp_path / "page.html").write_text(page(SAMPLES["failed"]), encoding="utf-8")
    shot = tmp_path / "shot.png"
    browser.run(
        tmp_path,
        f"--window-size={width},2400",
        f"--blink-settings=preferredColorScheme={int(scheme == 'light')}",
        f"--screenshot={shot}",
        (tmp_path / "page.html").as_uri(),
    )
    data = shot.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert int.from_bytes(data[16:20], "big") == width
