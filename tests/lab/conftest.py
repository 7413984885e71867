"""Fixtures of the lab tests; their helpers are in harness.py."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
from harness import ROOT


@pytest.fixture(scope="session", autouse=True)
def running_lab() -> Iterator[None]:
    """Fail if the lab is not up, instead of testing nothing."""
    status = subprocess.run(
        [sys.executable, ROOT / "lab" / "lab", "status"], check=False, capture_output=True, text=True
    )
    if status.returncode:
        pytest.fail(f"the lab is not up (tools/with_lab.py 4 pytest tests/lab): {status.stdout}{status.stderr}")
    yield


@pytest.fixture
def report(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "report.json"
