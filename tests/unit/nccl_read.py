"""Read NCCL logs as the module does, and find the logs that tests are based on."""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Reader
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import transport
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.verdict import Expected

REAL = pathlib.Path(__file__).resolve().parent / "fixtures" / "nccl" / "real"
TRUTH: dict[str, dict[str, t.Any]] = json.loads((REAL / "truth.json").read_text(encoding="utf-8"))["cases"]
SIGNATURES = transport.signatures()


def judged(logs: t.Iterable[t.Iterable[str]], world: int | None, **expected: int) -> dict[str, t.Any]:
    """Return the report on logs, one source each."""
    reader = Reader(SIGNATURES)
    for number, lines in enumerate(logs):
        reader.read(f"log {number}", lines)
    return transport.report(reader.finish(), Expected(world, **expected))


def real(name: str) -> list[list[str]]:
    """Return the lines of each log of a real run."""
    return [path.read_text(encoding="utf-8").splitlines() for path in sorted((REAL / name).glob("*.log"))]


def first_cause(report: t.Mapping[str, t.Any]) -> str:
    """Return the id of the likeliest cause, empty where there is none."""
    return str(report["findings"][0]["id"]) if report["findings"] else ""


def shared(name: str) -> list[str]:
    """Return a log that lies beside the checkout (DGXSPARK_FIXTURES), or skip."""
    folder = os.environ.get("DGXSPARK_FIXTURES")
    if not folder:
        pytest.skip("not run: DGXSPARK_FIXTURES does not say where the published logs lie")
    return pathlib.Path(folder, "nccl", name).read_text(encoding="utf-8", errors="replace").splitlines()
