"""The memory guard on a node under real pressure: the right process goes, and the node stays reachable."""

from __future__ import annotations

import pathlib
import re
import statistics
import subprocess
import sys
import time
import typing as t
from collections.abc import Iterator

import pytest
import yaml
from harness import ROOT, lab, play, sh, wait_for

NODE = "spark1"
# Both a bystander that is larger than the rank, and a rank that grows until it is stopped. It sets its name in the kernel.
HOG = """
import ctypes, sys, time
name, start_mib, step_mib, score = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)
open("/proc/self/oom_score_adj", "w").write(str(score))
held = [bytearray(b"x" * 1048576) for _ in range(start_mib)]
while True:
    held += [bytearray(b"x" * 1048576) for _ in range(step_mib)]
    time.sleep(0.2 if step_mib else 5)
"""


def guard(*arguments: str) -> t.Any:
    return play("site.yml", "--tags", "memory_guard", "-i", str(guard.inventory), *arguments, limit=NODE)  # type: ignore[attr-defined]


@pytest.fixture(scope="module", autouse=True)
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    if sh(NODE, "test -x /usr/bin/earlyoom && echo yes", check=False) != "yes":
        pytest.skip("not run: earlyoom is not in the guest's image (lab/guest/packages.txt)")
    inventory = tmp_path_factory.mktemp("guard") / "k3s.yml"
    inventory.write_text(yaml.safe_dump({"all": {"children": {"k3s_server": {"hosts": {NODE: {}}}}}}), encoding="utf-8")
    guard.inventory = inventory  # type: ignore[attr-defined]
    sh(NODE, f"mkdir -p /root/hog && cat > /root/hog/hog.py <<'END'\n{HOG}\nEND")
    laid = guard()
    assert laid.code == 0, laid.output
    yield
    sh(NODE, "systemctl stop 'hog-*' 2>/dev/null; rm -rf /root/hog", check=False)
    play("playbooks/teardown.yml", "--tags", "memory_guard", "-i", str(inventory), limit=NODE)


def hog(name: str, start: int, step: int, score: int) -> None:
    sh(
        NODE,
        f"systemd-run -q --unit=hog-{name} -p Restart=no /usr/bin/python3 /root/hog/hog.py {name} {start} {step} {score}",
    )


def alive(name: str) -> bool:
    return sh(NODE, f"systemctl is-active hog-{name}", check=False) == "active"


@pytest.mark.long
def test_the_second_run_changes_nothing() -> None:
    again = guard()
    assert again.code == 0 and again.changed[NODE] == 0, again.output


@pytest.mark.long
def test_memory_is_kept_for_what_the_node_is_reached_by() -> None:
    for unit in ("ssh.service", "systemd-journald.service", "system.slice"):
        assert int(sh(NODE, f"systemctl show --value --property=MemoryMin {unit}")) > 0, unit
        path = sh(NODE, f"systemctl show --value --property=ControlGroup {unit}")
        assert int(sh(NODE, f"cat /sys/fs/cgroup{path}/memory.min")) > 0, unit


def test_the_process_that_must_go_is_the_one_that_goes() -> None:
    hog("bystander", 150, 0, 0)
    hog("rank-0", 20, 4, 1000)
    wait_for(lambda: not alive("rank-0"), 120, "the rank's end")
    assert alive("bystander"), "the larger process was taken, which was not the one that grew"
    said = sh(NODE, "journalctl -u earlyoom --no-pager -o cat | tail -n 20")
    assert re.search(r'sending SIG(TERM|KILL) to process \d+ .*"rank-0"', said), said
    sh(NODE, "systemctl stop hog-bystander; systemctl reset-failed 'hog-*'", check=False)


@pytest.mark.long
def test_during_a_load_the_page_cache_is_dropped_and_otherwise_not() -> None:
    fill = "head -c 250M /dev/zero > /root/hog/weights; cat /root/hog/weights > /dev/null"
    sh(NODE, fill)
    assert sh(NODE, "systemctl is-active dgxspark-load-guard", check=False) != "active"
    connect = "import socket, time; s = socket.socket(socket.AF_UNIX); s.connect('/run/dgxspark/load-guard/socket')"
    sh(NODE, f"systemd-run -q --unit=loading python3 -c \"{connect}; s.send(b'rank-0'); time.sleep(600)\"")
    wait_for(lambda: sh(NODE, "systemctl is-active dgxspark-load-guard", check=False) == "active", 30, "the load guard")
    hog("rank-0", 120, 0, 1000)
    sh(NODE, fill)
    free = "awk '/^MemFree/ {print int($2 / 1024)}' /proc/meminfo"
    wait_for(lambda: int(sh(NODE, free)) >= 96, 60, "free memory above the floor")
    sh(NODE, "systemctl stop loading hog-rank-0")
    wait_for(
        lambda: sh(NODE, "systemctl is-active dgxspark-load-guard", check=False) != "active", 90, "the guard's end"
    )
    assert "All loads have finished" in sh(NODE, "journalctl -u dgxspark-load-guard --no-pager -o cat | tail -n 3")


# --- long: how long a node is unresponsive ------------------------------------------------------------------------------


def longest_gap(seconds: float) -> float:
    """Return the longest time between heartbeats over one ssh session while a rank grows; logging in does not count."""
    beat = "while :; do cat /proc/uptime; sleep 0.2; done"
    program = [sys.executable, str(ROOT / "lab" / "lab"), "ssh", NODE, beat]
    gaps = []
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as heart:
        assert heart.stdout
        assert heart.stdout.readline()
        hog("rank-0", 20, 8, 0)
        last, end = time.monotonic(), time.monotonic() + seconds
        while time.monotonic() < end and heart.stdout.readline():
            gaps.append(time.monotonic() - last)
            last = time.monotonic()
        heart.kill()
    sh(NODE, "systemctl stop hog-rank-0; systemctl reset-failed 'hog-*'", check=False)
    return max(gaps)


@pytest.mark.long
def test_a_node_is_heard_of_four_times_as_often(tmp_path: pathlib.Path) -> None:
    guarded = [longest_gap(60) for _turn in range(3)]
    play("playbooks/teardown.yml", "--tags", "memory_guard", "-i", str(guard.inventory), limit=NODE)  # type: ignore[attr-defined]
    sh(NODE, "systemctl stop earlyoom")
    bare = [longest_gap(60) for _turn in range(3)]
    lab("status")
    assert statistics.median(guarded) <= statistics.median(bare) / 4, f"with: {guarded} s, without: {bare} s"
