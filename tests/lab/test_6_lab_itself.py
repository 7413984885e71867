"""The lab's own promises, on live virtual machines of a second, small lab: killed starts, crashes, nothing left behind."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from harness import ROOT

pytestmark = pytest.mark.long

NAME = "selftest"
RUN = pathlib.Path(f"/tmp/dgxspark-lab-{os.getuid()}-{NAME}")
ENVIRONMENT = {**os.environ, "DGXSPARK_LAB_NAME": NAME, "DGXSPARK_LAB_PORT": "22480"}
COMMAND = [sys.executable, str(ROOT / "lab" / "lab")]


def small(*words: str, timeout: float = 400) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], check=False, env=ENVIRONMENT, capture_output=True, text=True, timeout=timeout
    )


def left() -> list[str]:
    """Processes, files and network devices of the small lab."""
    processes = subprocess.run(["pgrep", "-af", f"{RUN}/"], check=False, capture_output=True, text=True).stdout
    names = [path.name for path in pathlib.Path("/sys/class/net").iterdir()]
    devices = [name for name in names if NAME in name or name.startswith("tap")]
    return [*processes.splitlines(), *devices, *([str(RUN)] if RUN.exists() else [])]


def virtual_machines() -> dict[str, str]:
    """Process id of each node's QEMU."""
    lines = subprocess.run(["pgrep", "-a", "qemu"], check=False, capture_output=True, text=True).stdout.splitlines()
    mine = [line.split(" ", 1) for line in lines if f"{RUN}/" in line]
    return {re.findall(r"spark\d+", command)[0]: pid for pid, command in mine}


@pytest.fixture(autouse=True)
def taken_down() -> Iterator[None]:
    small("down")
    yield
    small("down")
    assert left() == []


@pytest.mark.parametrize("then", ["down", "up"])
@pytest.mark.parametrize("seconds", [0.3, 1.5, 3.0, 5.0])
def test_killed_in_the_middle_of_up(seconds: float, then: str) -> None:
    started = subprocess.Popen(
        [*COMMAND, "up", "--nodes", "2"],
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(seconds)
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    after = small(then, *(["--nodes", "2"] if then == "up" else []))
    assert after.returncode == 0, after.stderr
    if then == "down":
        assert left() == []
    else:
        assert small("status").returncode == 0
        for node in ("spark1", "spark2"):
            assert small("ssh", node, "hostname").stdout.strip() == node


def test_a_second_up_is_a_no_op() -> None:
    assert small("up", "--nodes", "2").returncode == 0
    before = virtual_machines()
    again = small("up", "--nodes", "2")
    assert again.returncode == 0
    assert "Already up" in again.stdout + again.stderr
    assert virtual_machines() == before


def test_a_crash_is_reported_by_name_and_mended_by_up() -> None:
    assert small("up", "--nodes", "2").returncode == 0
    before = virtual_machines()
    assert small("crash", "spark2").returncode == 0
    status = small("status")
    assert status.returncode == 3
    assert "spark2 is " in status.stdout + status.stderr
    assert "spark1 is " not in status.stdout + status.stderr
    assert small("up", "--nodes", "2").returncode == 0
    assert small("ssh", "spark2", "hostname").stdout.strip() == "spark2"
    assert virtual_machines()["spark1"] == before["spark1"]


def test_a_cold_start() -> None:
    assert small("up", "--nodes", "1", "--cold").returncode == 0
    assert small("ssh", "spark1", "hostname").stdout.strip() == "spark1"
