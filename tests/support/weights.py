"""What the role model_weights has read of the nodes' caches."""

from __future__ import annotations

import typing as t

Plain = dict[str, t.Any]


A, B, REPO, GIB = "a" * 40, "b" * 40, "org/model", 2**30


def manifest(revision: str = A, size: int = 100 * GIB) -> Plain:
    return {
        "repo": REPO,
        "revision": revision,
        "files": [{"path": "m", "blob": "0" * 64, "size": size, "sha256": "0" * 64}],
        "ignore": [],
    }


def has(revision: str | None = A, whole: bool = True, missing: int = 0, free_gib: float = 500) -> Plain:
    made = {
        "manifest": manifest(revision) if revision else None,
        "whole": whole,
        "total": 100 * GIB,
        "missing": missing,
    }
    return {"weights": {REPO: made}, "free_mib": int(free_gib * 1024)}


def nothing(free_gib: float = 500) -> Plain:
    return has(None, False, free_gib=free_gib)
