"""The signatures' patterns: none can take long, none fires on healthy logs, and `follows_from` is consistent."""

from __future__ import annotations

import os
import pathlib
import re

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils import signatures as scanner
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge, signatures
from ansible_collections.dgxspark.cluster.tests.unit.expressions import free_repeats, nested, steps, worst_lines

SIGNATURES = knowledge.load("signatures")
TABLE = signatures.load_table()
OWN = {name for name in SIGNATURES if not name.startswith(("nccl.", "torch.nccl-"))}


@pytest.mark.parametrize("name", SIGNATURES)
def test_no_repeat_inside_a_repeat(name: str) -> None:
    assert not nested(SIGNATURES[name]["pattern"])


@pytest.mark.parametrize("name", sorted(OWN))
def test_a_free_wildcard_has_an_end(name: str) -> None:
    """The rule for new signatures: `.{0,80}`, never `.*`."""
    assert not re.search(r"(?<!\\)\.[*+]", SIGNATURES[name]["pattern"])


@pytest.mark.parametrize("name", SIGNATURES)
def test_no_line_takes_long(name: str) -> None:
    """Steps are counted on worst-case lines: twice the length may cost eight times as much, never more."""
    entry = SIGNATURES[name]
    if free_repeats(entry["pattern"]) < 2:
        return  # each start and one free end: the square of the length at most
    for short, long in zip(worst_lines(entry["example"], 40), worst_lines(entry["example"], 80), strict=True):
        few, many = steps(entry["pattern"], short), steps(entry["pattern"], long)
        assert many <= 8.8 * few + 2000, long


def test_the_count_tells_a_catastrophe_from_a_search() -> None:
    def growth(pattern: str) -> float:
        return steps(pattern, "a" * 12) / steps(pattern, "a" * 6)

    assert growth("b") < 2.5
    assert 3 < growth("a.*b") < 5
    assert 6 < growth("a.*a.*b") < 9
    assert growth("(?:a+)+b") > 30
    assert nested("(?:a+)+b") and not nested("a+b+")
    assert growth("(?:a|a)*b") > 30


@pytest.mark.parametrize("pattern", TABLE.patterns, ids=lambda pattern: pattern.id)
def test_a_text_is_in_the_example_and_needed(pattern: scanner.Pattern) -> None:
    example = SIGNATURES[pattern.id]["example"]
    assert any(text in example for text in pattern.texts)
    if pattern.texts != ("",):
        for text in pattern.texts:
            example = example.replace(text, "#")
        assert pattern.expression.search(example) is None


def test_most_patterns_have_a_text_so_that_large_logs_are_read_fast() -> None:
    assert sum("" not in pattern.texts for pattern in TABLE.patterns) > 0.9 * len(TABLE.patterns)


def test_what_is_named_as_a_reason_exists_and_nothing_follows_from_itself() -> None:
    assert sum(bool(entry.follows_from) for entry in TABLE.entries.values()) > 30
    for name in TABLE.entries:
        assert name not in TABLE.reasons(name)
        assert all(not TABLE.entries[reason].benign for reason in TABLE.reasons(name))


# What a Spark and its engines log when all is well: lines of the kind that owners publish.
HEALTHY = """
[    1.533198] mlx5_core 0000:01:00.0: firmware version: 28.45.4028
[    1.686818] mlx5_core 0000:01:00.0: Port module event: module 0, Cable plugged
[    1.687055] mlx5_core 0000:01:00.0: mlx5_pcie_event:304:(pid 328): PCIe slot advertised sufficient power (75W).
mlx5_core 0000:01:00.0 enp1s0f0np0: Link up
mlx5_core 0000:01:00.0: E-Switch: Enable: mode(LEGACY), nvfs(4), necvfs(0), active vports(5)
cx7-pcie-hotplug MTKP0001:00: PCIe hotplug driver initialized successfully
cx7-pcie-hotplug MTKP0001:00: Hotplug enabled
NVRM: loading NVIDIA UNIX Open Kernel Module for aarch64  580.159.03  Release Build
Jun 17 16:18:42 spark1 k3s[3814]: time="2026-06-17T16:18:42Z" level=info msg="Starting k3s agent v1.36.3+k3s1"
Jun 17 16:18:43 spark1 k3s[3814]: I0617 16:18:43.082373 3814 server.go:1] "Started kubelet"
[2026-05-26 13:30:00 TP0] Init torch distributed begin.
[2026-05-26 13:30:05 TP0] Init torch distributed ends. mem usage=0.44 GB
[2026-05-26 13:30:05 TP0] Load weight begin. avail mem=104.20 GB
[2026-05-26 13:38:21 TP0] Load weight end. type=Model, dtype=torch.bfloat16, avail mem=45.02 GB, mem usage=59.18 GB.
[2026-05-26 13:38:22 TP0] Memory pool end. avail mem=18.38 GB
[2026-05-26 13:38:22 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=18.10 GB
[2026-05-26 13:39:12 TP0] Capture cuda graph end. Time elapsed: 49.81 s. mem usage=2.73 GB. avail mem=15.37 GB.
[2026-05-26 13:39:15] The server is fired up and ready to roll!
[2026-05-26 13:40:15 TP0] Decode batch. #running-req: 8, #token: 4096, token usage: 0.02, cuda graph: True, gen throughput (token/s): 101.30
INFO 03-08 17:27:28 [core.py:69] Initializing a V1 LLM engine (v0.17.0) with config: model='m'
INFO 03-08 17:27:48 [gpu_worker.py:298] Available KV cache memory: 24.51 GiB
INFO:     Application startup complete.
spark1:672:672 [0] NCCL INFO NCCL version 2.28.9+cuda13.0
spark1:672:672 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0
spark1:672:672 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 0
spark1:672:672 [0] NCCL INFO ncclCommInitRankConfig comm 0x3203ecf0 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 - Init COMPLETE
"""


def test_nothing_is_found_in_healthy_lines() -> None:
    reading = scanner.scan("healthy", scanner.numbered(HEALTHY), TABLE.patterns)
    assert reading.lines > 20
    assert [(hit.id, hit.excerpt) for hit in reading.hits] == []


def faults_of(name: str) -> set[str]:
    folder = os.environ.get("DGXSPARK_FIXTURES")
    if not folder:
        pytest.skip("not run: DGXSPARK_FIXTURES names no folder")
    readings = signatures.read_path(str(pathlib.Path(folder, "nccl", name)), TABLE)
    return {finding["id"] for finding in signatures.findings(readings, TABLE) if finding["root"]}


@pytest.mark.parametrize(
    ("name", "roots"),
    [
        ("p2p-rank0.log", {"nccl.ib-no-device", "nccl.ib-empty-list"}),  # true, and irrelevant on one node
        ("socket-rank0.log", {"nccl.ib-no-device", "nccl.ib-empty-list"}),
        ("ibforced-rank0.log", {"nccl.ib-no-device", "nccl.ib-empty-list"}),
        ("netib-rank0.log", {"nccl.ib-no-device", "nccl.ib-empty-list"}),
        ("published/roce-1nic-nogdr-2.20.5.log", set()),
        ("published/ib-auto-roce-and-ib-nics-2.20.5.log", set()),
        ("published/socket-ib-disabled-ens-2.20.5.log", {"engine.nccl-ib-disabled"}),
        ("published/fail-ifname-down-2.20.5.log", {"nccl.no-interface"}),
    ],
)
def test_real_logs_have_these_causes_and_no_others(name: str, roots: set[str]) -> None:
    """The logs are outside the repository."""
    assert faults_of(name) == roots
