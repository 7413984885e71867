"""The links of README, guides and other texts: finds broken ones within the repository, and lists the external ones.

Usage: links.py. Writes docs/site/external-links.txt for a person to check; no test fetches them. Exit status 1: a link
within the repository is broken.
"""

from __future__ import annotations

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LISTED = ROOT / "docs" / "site" / "external-links.txt"
# Example addresses, for the reader to replace.
MADE_UP = re.compile(
    r"https?://(?:[\w.-]*\.)?(?:example|localhost)\b|https?://(?:\d|\[|<|\{)|https://github\.com/dgxspark/"
)


def texts() -> list[pathlib.Path]:
    """Return the texts for people: Markdown except for results, and the guides."""
    folders = (ROOT, ROOT / "lab", ROOT / "extensions" / "molecule", *sorted((ROOT / "roles").iterdir()))
    found = [path for folder in folders for path in sorted(folder.glob("*.md"))]
    return [*found, *sorted((ROOT / "docs" / "docsite" / "rst").glob("*.rst"))]


def anchors(path: pathlib.Path) -> set[str]:
    """Return the anchors that GitHub generates for a Markdown file's headings."""
    heads = re.findall(r"(?m)^#+ (.+)$", path.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def targets(path: pathlib.Path) -> list[str]:
    """Return a Markdown file's link and image targets, without code blocks."""
    text = re.sub(r"(?ms)^```.*?^```|`[^`\n]*`", "", path.read_text(encoding="utf-8"))
    return [link or picture for link, picture in re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", text)]


def broken(path: pathlib.Path) -> list[str]:
    """Return a Markdown file's broken links within this repository."""
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
    """Return all external addresses in the texts."""
    found: set[str] = set()
    for path in texts():
        for link in re.findall(r"https?://[^\s`'\")<>\]}|]+", path.read_text(encoding="utf-8")):
            if not MADE_UP.match(link):
                found.add(link.rstrip(".,:;*_"))
    return sorted(found)


def main() -> int:
    """Write the list; print the broken links."""
    LISTED.write_text("".join(f"{link}\n" for link in external()), encoding="utf-8")
    wrong = [f"{path.relative_to(ROOT)}: {link}" for path in texts() if path.suffix == ".md" for link in broken(path)]
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
