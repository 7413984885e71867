"""What the role memory_guard left on a host, seen from outside it. The figures are written out from knowledge/memory_guard/spark.yml."""

from __future__ import annotations

import json

import pytest

from ansible_collections.dgxspark.cluster.tests.testinfra.hosts import reach

UNITS = "/etc/systemd/system"
DROP_IN = "50-dgxspark-memory.conf"


@pytest.mark.parametrize(
    ("unit", "lines"),
    [
        ("system.slice", ["[Slice]", "MemoryMin=1920M", "MemoryLow=3072M"]),
        ("ssh.service", ["[Service]", "MemoryMin=128M"]),
        ("systemd-journald.service", ["[Service]", "MemoryMin=128M", "OOMScoreAdjust=-900"]),
    ],
)
def test_a_unit_has_its_share_of_memory(unit: str, lines: list[str]) -> None:
    drop_in = reach("spark1").file(f"{UNITS}/{unit}.d/{DROP_IN}")
    assert drop_in.mode == 0o644
    assert [line for line in drop_in.content_string.splitlines() if line and not line.startswith("#")] == lines


def test_the_load_guard_s_socket_is_there_after_a_boot_and_now() -> None:
    said = reach("spark1").check_output(
        "systemctl show --property=UnitFileState,ActiveState,SubState dgxspark-load-guard.socket"
    )
    assert said.split() == ["UnitFileState=enabled", "ActiveState=active", "SubState=listening"]
    socket = reach("spark1").file(f"{UNITS}/dgxspark-load-guard.socket")
    assert "SocketMode=0600" in socket.content_string.splitlines()


def test_the_load_guard_s_program_compiles_with_the_host_s_python_and_has_its_floor() -> None:
    host = reach("spark1")
    program = host.file("/usr/local/lib/dgxspark/load-guard")
    assert program.mode == 0o755 and program.user == "root"
    host.check_output(f'python3 -ISc \'compile(open("{program.path}").read(), "guard", "exec")\'')
    service = host.file(f"{UNITS}/dgxspark-load-guard.service").content_string
    assert f"ExecStart=/usr/bin/python3 -I -S {program.path}" in service.splitlines()


def test_the_part_that_was_left_out_is_not_there() -> None:
    assert not reach("spark1").file(f"{UNITS}/earlyoom.service.d/60-dgxspark-kill.conf").exists


def test_the_record_names_files_that_are_there() -> None:
    host = reach("spark1")
    listed = json.loads(host.file("/var/lib/dgxspark/memory_guard.json").content_string)["files"]
    assert len(listed) > 10
    assert all(host.file(path).exists for path in listed)
