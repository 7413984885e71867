"""Check whether this machine reaches what the test beside this file fetches from. Exit status 77 (not run): it does not."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request

SOURCES = ("https://github.com", "https://ghcr.io/v2/")


def unreached(sources: list[str]) -> list[str]:
    """Return those that do not answer, with the reason. Any HTTP answer counts: a registry wants a token first."""
    found = []
    for source in sources:
        try:
            urllib.request.urlopen(source, timeout=20).close()
        except urllib.error.HTTPError:
            continue
        except OSError as error:
            found.append(f"{source} ({error})")
    return found


if __name__ == "__main__":
    if missing := unreached(sys.argv[1:] or list(SOURCES)):
        print(f"not run: the releases cannot be fetched here: {', '.join(missing)}")
        raise SystemExit(77)
