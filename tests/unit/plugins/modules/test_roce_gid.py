"""The module roce_gid, on a fake node."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.dgxspark.cluster.plugins.module_utils import facts
from ansible_collections.dgxspark.cluster.plugins.modules import roce_gid
from ansible_collections.dgxspark.cluster.tests.unit.fakes import FakeNode, lab

VF = {"purpose": "serving", "prefix": 24, "mtu": 9000}
FUNCTION = {
    "slot": "p0f0",
    "port": 0,
    "function": 0,
    "segment": "switch",
    "netdev": "enp1s0f0np0",
    "pci": None,
    "mtu": 9000,
    "vfs": [
        {**VF, "index": 0, "mac": "02:d6:00:00:00:01", "address": "10.100.0.1", "subnet": "10.100.0.0/24"},
        {**VF, "index": 1, "mac": "02:d6:00:00:00:02", "address": "10.100.1.1", "subnet": "10.100.1.0/24"},
    ],
}


class Clock:
    """Time that passes only during sleep; `at` holds actions by their time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.at: list[tuple[float, t.Callable[[], None]]] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for when, action in [item for item in self.at if item[0] <= self.now]:
            self.at.remove((when, action))
            action()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(roce_gid, "time", fake)
    return fake


def call(node: FakeNode, monkeypatch: pytest.MonkeyPatch, capfd: t.Any, **options: t.Any) -> dict[str, t.Any]:
    monkeypatch.setattr(roce_gid, "module_runner", lambda module: node.run)
    monkeypatch.setattr(facts, "entering", lambda run: node.enter)
    roots = {key: value for key, value in node.roots.items() if key != "system_root"}
    arguments = {
        "functions": [FUNCTION],
        "device_ids": node.device_ids,
        "timeout": 0,
        "sysfs_root": node.sysfs,
        **roots,
        **options,
    }
    with patch_module_args(arguments), pytest.raises(SystemExit):
        roce_gid.main()
    return t.cast(dict[str, t.Any], json.loads(capfd.readouterr().out))


def test_before_and_after_addresses(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: t.Any) -> None:
    node = lab(tmp_path, vfs=2)
    before = call(node, monkeypatch, capfd)
    assert before["failed"] and "only link-local" in before["msg"] and "0 of 2" in before["msg"]
    assert {finding["id"] for finding in before["findings"]} == {"gid.link-down"}
    node.address("enp1s0f0v0", "10.100.0.1/24")
    node.address("enp1s0f0v1", "10.100.1.1/24")
    after = call(node, monkeypatch, capfd)
    assert not after.get("failed") and after["changed"] is False and after["findings"] == []
    assert after["indices"] == {"roce_x0": 1, "roce_x1": 1}
    assert [gid["address"] for gid in after["gids"]] == ["10.100.0.1", "10.100.1.1"]


def test_every_finding_is_a_sentence_and_the_good_ones_are_returned(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: t.Any
) -> None:
    node = lab(tmp_path, vfs=1)
    node.address("enp1s0f0v0", "10.100.0.1/24")
    result = call(node, monkeypatch, capfd, _ansible_check_mode=True)
    assert result["failed"] and "1 of 2" in result["msg"] and "p0f0v1" in result["msg"]
    assert result["indices"] == {"roce_x0": 1}


def test_it_waits_for_what_comes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: t.Any, clock: Clock
) -> None:
    node = lab(tmp_path, vfs=2)
    node.address("enp1s0f0v0", "10.100.0.1/24")
    clock.at = [(4, lambda: node.address("enp1s0f0v1", "10.100.1.1/24"))]
    assert "failed" not in call(node, monkeypatch, capfd, timeout=10)
    assert 4 <= clock.now <= 6


def test_it_does_not_wait_for_ever(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: t.Any, clock: Clock
) -> None:
    assert call(lab(tmp_path, vfs=2), monkeypatch, capfd, timeout=10)["failed"]
    assert clock.now == 10


def test_it_does_not_wait_for_a_vf_that_is_not_there(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: t.Any, clock: Clock
) -> None:
    assert call(lab(tmp_path, vfs=1), monkeypatch, capfd, timeout=10)["failed"]
    assert clock.now == 0


def test_a_pod_s_vf_passes(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: t.Any) -> None:
    node = lab(tmp_path, vfs=2)
    node.address("enp1s0f0v0", "10.100.0.1/24")
    node.add_namespace("cni-1")
    node.move("enp1s0f0v1", "cni-1", "net1")
    node.address("net1", "10.100.1.1/24")
    node.add_rxe("net1", "rxe_there")
    result = call(node, monkeypatch, capfd)
    assert [(gid["place"], gid["hca"]) for gid in result["gids"]] == [("host", "roce_x0"), ("pod", "rxe_there")]


@pytest.mark.parametrize(
    ("functions", "key"),
    [
        ([{**FUNCTION, "slto": 1}], "slto"),
        ([{key: value for key, value in FUNCTION.items() if key != "netdev"}], "netdev"),
        ([{**FUNCTION, "vfs": [{**VF, "index": "zero"}]}], "index"),
    ],
)
def test_a_bad_plan_is_one_error_that_names_the_key(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: t.Any, functions: list[t.Any], key: str
) -> None:
    result = call(lab(tmp_path, vfs=1), monkeypatch, capfd, functions=functions)
    assert result["failed"] and key in result["msg"] and result["findings"] == []
