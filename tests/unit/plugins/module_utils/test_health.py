"""How a node is doing, read from a fake one: versions, GPU, PCIe links, journals; and nothing about parts that it lacks."""

from __future__ import annotations

import itertools
import json
import pathlib
import typing as t

import pytest
from ansible.module_utils.testing import patch_module_args
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.health import (
    CLOCK_UNIT,
    PAGE_KIB,
    ClockLimit,
    Gpu,
    Health,
    PciLink,
    read_blocks,
    read_clock_limit,
    read_health,
    read_reboot,
)
from ansible_collections.dgxspark.cluster.plugins.module_utils.signatures import compile_patterns
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import from_plain
from ansible_collections.dgxspark.cluster.plugins.modules import node_health
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import power
from ansible_collections.dgxspark.cluster.tests.unit.fakes import FakeNode, spark

PATTERNS = {"kernel.oom-kill": r"Out of memory: Killed process \d+", "k3s.image-pull": "Failed to pull image"}
KILLED = "2026-11-20T10:00:00+00:00 spark1 kernel: Out of memory: Killed process 4242 (python3) HF_TOKEN=hf_0123456789abcdef\n"


def sick(tmp_path: pathlib.Path) -> FakeNode:
    node = spark(tmp_path, vfs=0)
    for path, text in {
        "proc/uptime": "86400.12 1000.0\n",
        "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/nvme0n1p2 kho=off\n",
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.159.03  Release Build  (x)\n",
        "proc/meminfo": "MemTotal: 127600000 kB\nMemAvailable: 3000000 kB\nCmaTotal: 0 kB\nCmaFree: 9700000 kB\nHugePages_Total: 0\n",
        "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.4 LTS"\n',
        "etc/dgx-release": 'DGX_SWBUILD_VERSION="7.2.3"\nDGX_OTA_VERSION="7.5.0"\n',
        "sys/class/dmi/id/bios_version": "5.36_0ACUM027\n",
        "sys/class/thermal/thermal_zone0/temp": "51000\n",
        "sys/class/thermal/thermal_zone1/temp": "83500\n",
        "sys/class/thermal/cooling_device0/temp": "999000\n",
        "var/lib/dpkg/status": (
            "Package: libnccl2\nStatus: install ok installed\nVersion: 2.30.4-1+cuda13.0\n\n"
            "Package: rdma-core\nStatus: deinstall ok config-files\nVersion: 50.0\n\n"
            "Package: libnccl2-dev\nStatus: install ok installed\nVersion: 9\n"
        ),
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    first = sorted(node.vf_pattern)[0]
    for name, text in (("current_link_speed", "32.0 GT/s PCIe\n"), ("current_link_width", "2\n")):
        (tmp_path / "sys/bus/pci/devices" / first / name).write_text(text, encoding="utf-8")
    node.run.on(["nvidia-smi"], (0, "NVIDIA GB10, P0, 799, 3003, 19.50, 41, 96\n", ""))
    node.run.on(["k3s", "--version"], (0, "k3s version v1.36.3+k3s1 (abc)\ngo version go1.24\n", ""))
    node.run.on(["journalctl"], journal)
    return node


def journal(argv: list[str]) -> tuple[int, str, str]:
    if any(word.startswith("--unit") for word in argv):
        return 0, 'a\nFailed to pull image "x"\n', ""
    if "-1" in argv:
        return 1, "", "Specifying boot ID or boot offset has no effect, no persistent journal was found.\n"
    return 0, f"x\n{KILLED}{KILLED}", ""


def read(node: FakeNode, **options: t.Any) -> Health:
    chosen: dict[str, t.Any] = {
        "device_ids": node.device_ids,
        "units": ["k3s.service"],
        "packages": ["libnccl2", "rdma-core"],
    }
    chosen |= {"proc_root": node.proc, "system_root": str(node.root)} | options
    patterns = compile_patterns({"id": name, "pattern": pattern} for name, pattern in PATTERNS.items())
    return read_health(Sysfs(node.sysfs), node.run, patterns, **chosen)


def test_all_of_it(tmp_path: pathlib.Path) -> None:
    node = sick(tmp_path)
    health = read(node)
    assert health.uptime_s == 86400.12
    assert "kho=off" in health.cmdline
    assert health.versions == {
        "kernel": "6.12.0-fake",
        "os": "Ubuntu 24.04.4 LTS",
        "dgx_os": "7.5.0",
        "bios": "5.36_0ACUM027",
        "driver": "580.159.03",
        "k3s": "v1.36.3+k3s1",
        "nccl": "2.30.4-1+cuda13.0",
    }
    assert health.memory == {"MemTotal": 127600000, "MemAvailable": 3000000, "CmaTotal": 0, "CmaFree": 9700000}
    assert health.gpus == (Gpu("NVIDIA GB10", "P0", 799.0, 3003.0, 19.5, 41.0, 96.0),)
    assert health.gpu_error is None
    assert health.hottest_c == 83.5
    assert health.links[0] == PciLink(sorted(node.vf_pattern)[0], 2, 32.0)
    assert health.links[1].width is None
    kernel, earlier, services = health.journals
    assert (kernel.lines, [(h.id, h.first, h.last, h.count) for h in kernel.hits]) == (
        3,
        [("kernel.oom-kill", 2, 3, 2)],
    )
    assert "hf_0123" not in kernel.hits[0].excerpt
    assert earlier.error and "no persistent journal" in earlier.error
    assert [hit.id for hit in services.hits] == ["k3s.image-pull"]


@pytest.mark.parametrize("active", [True, False])
def test_the_clock_limit_is_what_its_role_installed(tmp_path: pathlib.Path, active: bool) -> None:
    node = FakeNode(tmp_path)
    assert read_clock_limit(node.run, str(tmp_path)) is None
    (unit,) = power.plan("spark", 2300)["files"]
    assert unit["path"] == CLOCK_UNIT
    (tmp_path / CLOCK_UNIT[1:]).parent.mkdir(parents=True)
    (tmp_path / CLOCK_UNIT[1:]).write_text(unit["content"])
    node.run.on(["systemctl", "is-active"], (0, "active\n", "") if active else (3, "failed\n", ""))
    assert read_clock_limit(node.run, str(tmp_path)) == ClockLimit(2300, active)


@given(st.lists(st.lists(st.integers(0, 10**6), min_size=1, max_size=14), max_size=3))
def test_free_memory_by_the_size_of_its_blocks(zones: list[list[int]]) -> None:
    text = "".join(f"Node 0, zone   Normal {' '.join(f'{count:6}' for count in zone)} \n" for zone in zones)
    found = read_blocks(text)
    sizes = sorted(map(int, found))
    assert all(found[str(a)] >= found[str(b)] for a, b in itertools.pairwise(sizes))
    for size in sizes:
        kib = sum(
            count * (PAGE_KIB << n) for zone in zones for n, count in enumerate(zone) if PAGE_KIB << n >= size * 1024
        )
        assert found[str(size)] == kib // 1024


def test_few_commands_and_a_bounded_journal(tmp_path: pathlib.Path) -> None:
    node = sick(tmp_path)
    read(node, max_lines=77)
    assert len(node.run.calls) == 5
    assert node.run.calls[-1][node.run.calls[-1].index("-n") + 1] == "77"
    node.run.calls.clear()
    read(node, since="2 hours ago")
    journals = [call for call in node.run.calls if call[0] == "journalctl"]
    assert len(journals) == 2 and all("2 hours ago" in call for call in journals)


def test_of_a_bare_machine_everything_is_unknown_and_nothing_fails(tmp_path: pathlib.Path) -> None:
    node = FakeNode(tmp_path)
    health = read(node)
    assert health.gpus == () and health.gpu_error == "nvidia-smi is not installed"
    assert health.versions == {"kernel": "6.12.0-fake"}
    assert health.links == () and health.hottest_c is None
    assert all(journal.error for journal in health.journals)


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, None),
        ({"pkgs": "linux-base\n"}, None),
        ({"": "*** System restart required ***\n"}, ()),
        ({"": "", "pkgs": "linux-base\nlinux-base\n\x1b[2J evil\nlibc6\n"}, ("linux-base", "libc6")),
    ],
)
def test_a_pending_restart(tmp_path: pathlib.Path, files: dict[str, str], found: tuple[str, ...] | None) -> None:
    (tmp_path / "run").mkdir()
    for name, text in files.items():
        (tmp_path / "run" / ".".join(filter(None, ["reboot-required", name]))).write_text(text, encoding="utf-8")
    assert read_reboot(str(tmp_path)) == found


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (
            (9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", ""),
            "couldn't communicate",
        ),
        ((0, "No devices were found\n", ""), "No devices were found"),
        ((2, "", ""), "exit status 2"),
    ],
)
def test_why_there_is_no_gpu_is_told(tmp_path: pathlib.Path, answer: tuple[int, str, str], error: str) -> None:
    node = sick(tmp_path)
    node.run.on(["nvidia-smi"], answer)
    assert error in (read(node).gpu_error or "")


def test_what_a_gpu_does_not_tell_is_unknown(tmp_path: pathlib.Path) -> None:
    node = sick(tmp_path)
    node.run.on(["nvidia-smi"], (0, "NVIDIA GB10, P8, 208, [N/A], [Not Supported], 36, 0\n", ""))
    assert read(node).gpus == (Gpu("NVIDIA GB10", "P8", 208.0, None, None, 36.0, 0.0),)


def test_without_journalctl_the_ring_is_read(tmp_path: pathlib.Path) -> None:
    node = FakeNode(tmp_path)
    node.run.on(["dmesg"], (0, KILLED, ""))
    kernel = read(node).journals[0]
    assert kernel.error is None and [hit.id for hit in kernel.hits] == ["kernel.oom-kill"]


# --- the module -------------------------------------------------------------------------------------------------------


def call(node: FakeNode, monkeypatch: pytest.MonkeyPatch, capfd: t.Any, **options: t.Any) -> dict[str, t.Any]:
    monkeypatch.setattr(node_health, "module_runner", lambda module: node.run)
    roots = {"sysfs_root": node.sysfs, "proc_root": node.proc, "system_root": str(node.root)}
    with patch_module_args({"signatures": PATTERNS, **roots, **options}), pytest.raises(SystemExit):
        node_health.main()
    return t.cast(dict[str, t.Any], json.loads(capfd.readouterr().out))


@pytest.mark.parametrize("check", [False, True])
def test_the_module_returns_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: t.Any, check: bool
) -> None:
    result = call(sick(tmp_path), monkeypatch, capfd, packages=["libnccl2"], _ansible_check_mode=check)
    assert result["changed"] is False
    found = from_plain(Health, result["health"])
    assert found.versions["nccl"] == "2.30.4-1+cuda13.0"
    assert found.journals[0].hits[0].count == 2


@pytest.mark.parametrize(
    ("options", "needle"), [({"signatures": {"x": "("}}, "x: pattern"), ({"max_lines": 0}, "max_lines")]
)
def test_bad_options_are_one_error(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: t.Any, options: dict[str, t.Any], needle: str
) -> None:
    result = call(sick(tmp_path), monkeypatch, capfd, **options)
    assert result["failed"] and needle in result["msg"]
