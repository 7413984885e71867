"""The links of README, guides and other texts: those that lead to nothing here, and the list of those that lead outside.

Usage: links.py. Writes docs/site/external-links.txt, which a person may look through; no test fetches them. Exit status 1: a link
within the repository leads to nothing.
"""

from __future__ import annotations

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LISTED = ROOT / "docs" / "site" / "external-links.txt"
# Addresses that stand for a reader's own.
MADE_UP = re.compile(
    r"https?://(?:[\w.-]*\.)?(?:example|localhost)\b|https?://(?:\d|\[|<|\{)|https://github\.com/dgxspark/"
)


def texts() -> list[pathlib.Path]:
    """Return what people read: Markdown but for results, and the guides."""
    folders = (ROOT, ROOT / "lab", ROOT / "extensions" / "molecule", *sorted((ROOT / "roles").iterdir()))
    found = [path for folder in folders for path in sorted(folder.glob("*.md"))]
    return [*found, *sorted((ROOT / "docs" / "docsite" / "rst").glob("*.rst"))]


def anchors(path: pathlib.Path) -> set[str]:
    """Return the anchors that GitHub gives a Markdown file's headings."""
    heads = re.findall(r"(?m)^#+ (.+)$", path.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def targets(path: pathlib.Path) -> list[str]:
    """Return what a Markdown file links to and shows, code left out."""
    text = re.sub(r"(?ms)^```.*?^```|`[^`\n]*`", "", path.read_text(encoding="utf-8"))
    return [link or picture for link, picture in re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", text)]


def broken(path: pathlib.Path) -> list[str]:
    """Return the links of a Markdown file that lead to nothing in this repository."""
    found = []
    for target in targets(path):
        if re.match(r"[a-z]+:", target):
            continue
        file, _hash, anchor = target.partition("#")
        place = path.parent / file if file else path
        if not place.exists() or (anchor and place.suffix == ".md" and anchor not in anchors(place)):
            found.append(target)
    return found


def external() -> list[str]:
    """Return all addresses outside that the texts name."""
    found: set[str] = set()
    for path in texts():
        for link in re.findall(r"https?://[^\s`'\")<>\]}|]+", path.read_text(encoding="utf-8")):
            if not MADE_UP.match(link):
                found.add(link.rstrip(".,:;*_"))
    return sorted(found)


def main() -> int:
    """Write the list; say what is broken."""
    LISTED.write_text("".join(f"{link}\n" for link in external()), encoding="utf-8")
    wrong = [f"{path.relative_to(ROOT)}: {link}" for path in texts() if path.suffix == ".md" for link in broken(path)]
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
