"""Pages in a real browser: what is broken or too wide at a width, in light and dark. One start for all pages.

    problems = measured({"report": page}, widths=(390, 1440))

Each page lies in a frame of that width, which has its own colour scheme. Its Content-Security-Policy forbids scripts, so a script beside
the frame looks into it. `ours`: also what only our own pages promise (a figure beside its unit, no column without a figure, ...).
"""

from __future__ import annotations

import html
import json
import pathlib
import re
import shutil
import subprocess
import typing as t

NOT_RUN = "not run: there is no Chromium here (apt-get install chromium)"
PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
SMALLEST = 12
LOOK = """
const found = {};
const parsed = (text) => {
  const parts = (text.match(/[\\d.]+/g) || []).map(Number);
  return {rgb: parts.slice(0, 3), alpha: text.startsWith('rgba') ? parts[3] : 1, known: text.startsWith('rgb')};
};
const light = (rgb) => {
  const [r, g, b] = rgb.map((each) => each / 255).map((each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
// The ratio of WCAG 2 between a text's colour and what is behind it; null where a picture or a colour of another form is.
const contrast = (view, holder) => {
  const text = parsed(view.getComputedStyle(holder).color);
  for (let node = holder; node; node = node.parentElement) {
    const style = view.getComputedStyle(node), behind = parsed(style.backgroundColor);
    if (style.backgroundImage !== 'none' || !behind.known || !text.known || text.alpha < 1 || style.opacity < 1) return null;
    if (behind.alpha === 0 && node.parentElement) continue;
    if (behind.alpha < 1) return null;
    const [more, less] = [light(text.rgb), light(behind.rgb)].sort((a, b) => b - a);
    return (more + 0.05) / (less + 0.05);
  }
  return null;
};
const UNIT = /\\d (?:[KMGT]i?B|[GM]b\\/s|[KMG]i?B\\/s|tokens\\/s|tok\\/s|s|ms|µs|us|%|W|min|h)(?![\\p{L}\\p{N}])/gu;
const ground = (view, node) => {
  for (; node; node = node.parentElement) {
    const behind = parsed(view.getComputedStyle(node).backgroundColor);
    if (behind.alpha > 0) return behind.rgb.join();
  }
  return '255,255,255';
};
const ours = (doc, view, said) => {
  const walk = doc.createTreeWalker(doc.body, NodeFilter.SHOW_TEXT), range = doc.createRange();
  while (walk.nextNode()) {
    const node = walk.currentNode;
    for (const figure of node.data.matchAll(UNIT)) {
      range.setStart(node, figure.index); range.setEnd(node, figure.index + figure[0].length);
      const tops = [...range.getClientRects()].filter((each) => each.width > 0).map((each) => Math.round(each.top));
      if (new Set(tops).size > 1) said.add(`parted: ${node.data.slice(Math.max(0, figure.index - 6), figure.index + figure[0].length)}`);
    }
  }
  // What hides the shade at a frame's edge has the colour of its ground, or it is a patch itself.
  doc.querySelectorAll('*').forEach((each) => {
    const style = view.getComputedStyle(each);
    if (style.overflowX !== 'auto' || !style.backgroundImage.includes('gradient') || !each.getClientRects().length) return;
    const cover = parsed(style.backgroundImage.match(/rgba?\\([^)]*\\)/)[0]).rgb.join();
    if (cover !== ground(view, each)) said.add(`patch: ${cover} on ${ground(view, each)}`);
  });
  doc.querySelectorAll('code').forEach((each) => {
    range.selectNodeContents(each);
    const [text, box] = [range.getBoundingClientRect(), each.getBoundingClientRect()];
    if (box.width > text.width + 40 && view.getComputedStyle(each).display !== 'inline') said.add(`stretched: ${each.textContent.slice(0, 40)}`);
  });
  doc.querySelectorAll('table').forEach((table) => {
    const rows = [...table.querySelectorAll('tbody tr')].map((row) => [...row.children]);
    const names = rows.map((row) => row[0].textContent.trim());
    [...table.querySelectorAll('thead th')].forEach((head) => {
      const title = head.textContent.trim(), at = head.cellIndex;
      if (names.includes(title) || !table.getClientRects().length) return;  // of a host by itself: nothing was run is a result
      if (rows.length && rows.every((row) => ['', '-', '\u2013'].includes(row[at].textContent.trim()))) said.add(`empty column: ${title}`);
    });
  });
};
const look = (frame) => {
  const doc = frame.contentDocument, view = frame.contentWindow, wide = doc.documentElement.clientWidth, said = new Set();
  doc.querySelectorAll('details').forEach((each) => { each.open = true; });
  if (doc.documentElement.scrollWidth > wide) said.add(`page: ${doc.documentElement.scrollWidth} px on ${wide}`);
  const framed = (node) => {
    for (; node && node !== doc.body; node = node.parentElement)
      if (['auto', 'scroll', 'hidden', 'clip'].includes(view.getComputedStyle(node).overflowX)) return true;
    return false;
  };
  const walk = doc.createTreeWalker(doc.body, NodeFilter.SHOW_TEXT), range = doc.createRange();
  while (walk.nextNode()) {
    const node = walk.currentNode, holder = node.parentElement;
    if (!node.data.trim() || ['STYLE', 'SCRIPT', 'TITLE', 'DESC'].includes(holder.tagName.toUpperCase())) continue;
    const box = holder.getBoundingClientRect(), style = view.getComputedStyle(holder);
    if (!box.width || !box.height || style.visibility === 'hidden' || box.width <= 1) continue;
    const matrix = holder.getScreenCTM ? holder.getScreenCTM() : {a: 1, b: 0};  // turned text has a = 0
    const size = parseFloat(style.fontSize) * Math.hypot(matrix.a, matrix.b);
    if (size < SMALLEST - 0.05) said.add(`text of ${size.toFixed(1)} px: ${node.data.trim().slice(0, 40)}`);
    const ratio = holder.getScreenCTM ? null : contrast(view, holder), big = size >= 24 || (size >= 18.6 && style.fontWeight >= 700);
    if (ratio !== null && ratio < (big ? 3 : 4.5) - 0.01)
      said.add(`contrast ${ratio.toFixed(1)}: ${node.data.trim().slice(0, 40)} (${style.color})`);
    for (const word of node.data.matchAll(/[\\p{L}\\p{N}]+/gu)) {
      range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);
      const boxes = [...range.getClientRects()].filter((each) => each.width > 0);
      if (new Set(boxes.map((each) => Math.round(each.top))).size > 1 && word[0].length < 40) said.add(`broken: ${word[0]}`);
      if (boxes.some((each) => each.right > wide + 1) && !framed(holder)) said.add(`too wide: ${word[0]}`);
    }
  }
  if (OURS) ours(doc, view, said);
  found[frame.title] = [...said];
};
window.addEventListener('load', () => {
  document.querySelectorAll('iframe').forEach(look);
  const told = document.createElement('pre'); told.id = 'told'; told.textContent = JSON.stringify(found); document.body.append(told);
});
""".replace("SMALLEST", str(SMALLEST))


def can_run() -> bool:
    """Whether the browser is here."""
    return PROGRAM is not None


def run(folder: pathlib.Path, *words: str) -> str:
    """Start the browser with a profile in this folder; return what it prints."""
    command = [str(PROGRAM), *FLAGS, f"--user-data-dir={folder / 'profile'}", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout


def _frame(name: str, page: str, width: int, scheme: str, height: int) -> str:
    style = f"border:0;display:block;color-scheme:{scheme}"
    title = f"{name} at {width} px, {scheme}"
    return (
        f'<iframe title="{title}" style="{style}" width={width} height={height} srcdoc="{html.escape(page)}"></iframe>'
    )


def _started(folder: pathlib.Path, text: str, *words: str) -> str:
    (folder / "all.html").write_text(f"<!doctype html><meta charset=utf-8><body style='margin:0'>{text}", "utf-8")
    return run(folder, *words, (folder / "all.html").resolve().as_uri())


def measured(
    folder: pathlib.Path, pages: t.Mapping[str, str], widths: t.Sequence[int], *, ours: bool = False
) -> dict[str, list[str]]:
    """Return the problems of each page at each width, in light and in dark. ours: pages of this collection promise more."""
    frames = [
        _frame(name, page, width, scheme, 3000)
        for name, page in pages.items()
        for width in widths
        for scheme in ("light", "dark")
    ]
    dom = _started(
        folder,
        "".join(frames) + f"<script>const OURS = {str(ours).lower()};{LOOK}</script>",
        "--window-size=1600,3000",
        "--dump-dom",
    )
    told = re.search(r'<pre id="told">(.*?)</pre>', dom, re.DOTALL)
    assert told, dom[-500:]
    made: dict[str, list[str]] = json.loads(html.unescape(told[1]))
    assert len(made) == len(frames)
    return made


def picture(folder: pathlib.Path, page: str, out: pathlib.Path, width: int, scheme: str, height: int = 1600) -> None:
    """Write a page's upper part as a PNG."""
    size = (f"--window-size={max(width, 500)},{height}", f"--screenshot={out.resolve()}")
    _started(folder, _frame(out.stem, page, width, scheme, height), *size)
