# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""This machine: versions, apt sources, processes; and the command line's output."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from labkit import cli, config, host, processes
from labkit.cluster import Cluster
from labkit.errors import LabError

LAB = Path(__file__).resolve().parents[3] / "lab" / "lab"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("QEMU emulator version 10.0.2 (Debian 1:10.0.2)", (10, 0)),
        ("QEMU emulator version 7.2.19", (7, 2)),
        ("none", (0, 0)),
    ],
)
def test_versions_are_compared_as_numbers(text: str, version: tuple[int, int]) -> None:
    assert host.parse_version(text) == version
    assert (host.parse_version(text) >= host.MIN_QEMU) == (version[0] >= 8)


def test_the_mirror_is_apts_own_main_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = """base-files:
  Version table:
 *** 12.4 500
        500 http://mirror.example/debian-security bookworm-security/main amd64 Packages
        500 http://mirror.example/debian bookworm-updates/main amd64 Packages
        500 http://mirror.example/debian bookworm/main amd64 Packages
        100 /var/lib/dpkg/status
"""
    monkeypatch.setattr(host, "_output", lambda *command: policy)
    assert host.apt_source("base-files") == ("http://mirror.example/debian", "bookworm", "main")


def test_all_that_is_missing_is_said_at_once_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda tool: None)
    host.qemu_version.cache_clear()
    with pytest.raises(LabError, match=r"mmdebstrap.*qemu-system-x86.*\n.*install-deps"):
        host.check()
    host.qemu_version.cache_clear()


@pytest.fixture
def part(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(
        [sys.executable, "-c", "input()", processes.marker(tmp_path, "spark1")], stdin=subprocess.PIPE
    )
    until = time.monotonic() + 60
    while not processes.find(tmp_path):
        assert time.monotonic() < until
        time.sleep(0.01)
    yield child
    child.kill()
    child.wait()


def test_a_part_is_found_by_its_marker_and_ended(tmp_path: Path, part: subprocess.Popen[bytes]) -> None:
    assert processes.find(tmp_path) == {"spark1": part.pid}
    processes.end(tmp_path, "spark1")
    assert part.wait(10) != 0
    assert processes.find(tmp_path) == {}


def test_another_labs_part_is_left_alone(tmp_path: Path, part: subprocess.Popen[bytes]) -> None:
    other = tmp_path / "other"
    assert processes.find(other) == {}
    processes.end(other, "spark1")
    assert part.poll() is None
    # A lab whose folder shares only a prefix with this one's is another lab.
    assert processes.find(Path(str(tmp_path)[:-1])) == {}


def test_the_inventory_is_valid_yaml_and_reaches_running_nodes_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Cluster(config.Config("t", 23000, tmp_path / "cache", tmp_path / "run"), lambda text: None)
    (tmp_path / "run" / "spark1").mkdir(parents=True)
    (tmp_path / "run" / "spark2").mkdir()
    monkeypatch.setattr(processes, "find", lambda run: {"spark1": os.getpid()})
    (tmp_path / "run" / "spark1" / "up").write_text('{"accelerator": "tcg"}', encoding="utf-8")
    monkeypatch.setattr(Cluster, "_running_state", lambda self, number: "running")
    data = lab.inventory()
    assert yaml.safe_load(cli.yaml(data)) == data
    hosts = data["all"]["children"]["dgx"]["hosts"]  # type: ignore[index]
    assert hosts == {"spark1": {"ansible_host": "127.0.0.1", "ansible_port": 23001}}


def test_a_node_whose_process_is_gone_is_reported_by_name(tmp_path: Path) -> None:
    lab = Cluster(config.Config("t", 23000, tmp_path / "cache", tmp_path / "run"), lambda text: None)
    for name, files in (("spark1", ("up",)), ("spark2", ("up", "off")), ("spark3", ())):
        (tmp_path / "run" / name).mkdir(parents=True)
        for file in files:
            (tmp_path / "run" / name / file).write_text('{"accelerator": "tcg"}', encoding="utf-8")
    assert [(node.name, node.state) for node in lab.nodes()] == [
        ("spark1", "crashed"),
        ("spark2", "off"),
        ("spark3", "incomplete"),
    ]
    assert lab.report()["healthy"] is False


def test_down_sweeps_what_a_killed_up_left(tmp_path: Path, part: subprocess.Popen[bytes]) -> None:
    lab = Cluster(config.Config("t", 23000, tmp_path / "cache", tmp_path), lambda text: None)
    (tmp_path / "spark1").mkdir()
    assert lab.down() is True
    assert part.wait(10) != 0
    assert not tmp_path.exists()
    assert lab.down() is False


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        (["status"], {"DGXSPARK_LAB_NAME": "no/name"}, "DGXSPARK_LAB_NAME"),
        (["status"], {"DGXSPARK_LAB_PORT": "http"}, "DGXSPARK_LAB_PORT"),
        (["ssh", "9"], {}, "not a node"),
        (["ssh", "1"], {}, "not up"),
        (["link", "1", "eth0", "up"], {}, "enp1s0f0np0"),
        (["up", "--nodes", "9"], {}, "1 to 8"),
    ],
)
def test_mistakes_are_one_message_and_no_traceback(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], said: str
) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DGXSPARK_LAB_")}
    result = subprocess.run(
        [sys.executable, str(LAB), *arguments],
        env={**clean, "DGXSPARK_LAB_NAME": "unit-test-of-messages", "DGXSPARK_LAB_CACHE": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode in (1, 2)
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def waits(share: float, most: float = 5000) -> float:
    """How long a node is waited for that never answers, and uses this share of a core."""
    now = 0.0
    patience = processes.Patience(lambda: now * share, lambda: now)
    while not patience.over() and now < most:
        now += 1
    return now


def test_a_node_that_works_is_waited_for_and_one_that_hangs_is_not() -> None:
    """On a machine that does much else a start takes long, but the node's process gets on; a guest that hangs is idle."""
    assert waits(0.001) == processes.AT_LEAST
    assert waits(0.2) == processes.AT_MOST


def test_the_time_that_a_process_has_worked_is_read() -> None:
    before = processes.cpu_seconds(os.getpid())
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert processes.cpu_seconds(os.getpid()) > before > 0
    assert processes.cpu_seconds(2**22) == 0
