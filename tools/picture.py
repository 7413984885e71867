"""Make a picture of a report's page for the README: a browser's rendering, cropped to a height.

Usage: picture.py PAGE.html OUT.png [WIDTH HEIGHT]. Needs Debian's chromium; it loads nothing from outside.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def picture(page: pathlib.Path, out: pathlib.Path, width: int = 1000, height: int = 760) -> None:
    """Render the upper part of the page."""
    with tempfile.TemporaryDirectory() as profile:
        words = [f"--user-data-dir={profile}", f"--window-size={width},{height}", f"--screenshot={out.resolve()}"]
        command = ["chromium", *FLAGS, *words, page.resolve().as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=300)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 5):
        raise SystemExit(__doc__)
    picture(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), *map(int, sys.argv[3:]))
