# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""List a repository's files on the hub, or download them, with the hub's own library. Prints one JSON object.

Runs by itself, with a Python that has huggingface_hub: `python - '{"do": "list", "repo": …, "revision": …}'`. Needs nothing else
of this collection. Access to a repository depends on the token in the file that HF_TOKEN_PATH names.
"""

from __future__ import annotations

import errno
import fnmatch
import importlib
import json
import sys
import typing as t

# Causes by the library's error names, and by status; the first match counts.
CAUSES = {
    "GatedRepoError": "gated",
    "RepositoryNotFoundError": "unknown",
    "RevisionNotFoundError": "revision",
    "DisabledRepoError": "disabled",
    "HFValidationError": "name",
}
STATUS = {401: "token", 403: "gated", 404: "unknown", 429: "busy"}


def listing(hub: t.Any, asked: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the commit that a revision currently means, and its files: path, size, git's blob id, and sha256 if LFS has it."""
    api = hub.HfApi()
    if hasattr(api, "auth_check"):  # a gated repository shows its list to everyone, but its files only to some
        api.auth_check(asked["repo"])
    info = api.model_info(asked["repo"], revision=asked["revision"], files_metadata=True, timeout=30)
    files = []
    for each in info.siblings or ():
        if any(fnmatch.fnmatch(each.rfilename, pattern) for pattern in asked["ignore"]):
            continue
        lfs = each.lfs
        sha256 = (lfs["sha256"] if isinstance(lfs, dict) else lfs.sha256) if lfs else None
        files.append({"path": each.rfilename, "size": each.size, "blob": each.blob_id, "sha256": sha256})
    return {"revision": info.sha, "files": files}


def exactly(path: str) -> str:
    """Return a pattern that matches only this path."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)


def download(hub: t.Any, asked: dict[str, t.Any]) -> dict[str, t.Any]:
    """Download the requested files of a commit."""
    hub.snapshot_download(
        asked["repo"],
        revision=asked["revision"],
        cache_dir=asked["cache"],
        allow_patterns=[exactly(path) for path in asked["files"]],
        max_workers=asked.get("workers", 8),
    )
    return {"revision": asked["revision"]}


def cause(exc: BaseException) -> str:
    """Name the cause of an error, including chained ones."""
    seen: BaseException | None = exc
    while seen is not None:
        for kind in type(seen).__mro__:
            if kind.__name__ in CAUSES:
                status = getattr(getattr(seen, "response", None), "status_code", None)
                return (
                    "token" if status == 401 and kind.__name__ == "RepositoryNotFoundError" else CAUSES[kind.__name__]
                )
        status = getattr(getattr(seen, "response", None), "status_code", None)
        if status in STATUS:
            return STATUS[status]
        if isinstance(seen, OSError) and seen.errno == errno.ENOSPC:
            return "full"
        seen = seen.__cause__ or seen.__context__
    return "network"


def tell(result: dict[str, t.Any]) -> None:
    """Print the outcome as one line of JSON."""
    sys.stdout.write(json.dumps(result) + "\n")


def main(argument: str) -> int:
    """Carry out the request; the exit status is 0 unless it failed."""
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError as exc:
        tell({"cause": "library", "detail": str(exc)})
        return 1
    asked = json.loads(argument)
    try:
        result = (listing if asked["do"] == "list" else download)(hub, asked)
    except Exception as exc:
        detail = " ".join(str(exc).split())[:600]
        tell({"cause": cause(exc), "kind": type(exc).__name__, "detail": detail})
        return 1
    tell({**result, "library": getattr(hub, "__version__", None)})
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
