"""The module netplan_vf: arguments in, the core's answer out."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import netplan
from ansible_collections.dgxspark.cluster.plugins.modules import netplan_vf
from ansible_collections.dgxspark.cluster.tests.unit.fakes import Device, FakeNode
from ansible_collections.dgxspark.cluster.tests.unit.netplan_fakes import CX7, FakeHost, put

CONTENT = netplan.HEADER + "network:\n  version: 2\n  ethernets:\n    x: {match: {name: enp1s0f0np0}, mtu: 9000}\n"


@pytest.fixture
def host(tmp_path: pathlib.Path) -> FakeHost:
    node = FakeNode(tmp_path / "node")
    node.add_pf("0000:01:00.0", "enp1s0f0np0")
    node.add_device(Device("enP7s7", None, "52:54:00:00:00:01", ipv4=["10.0.2.15/24"]))
    return FakeHost(node)


def call(host: FakeHost, monkeypatch: pytest.MonkeyPatch, capfd: t.Any, **options: t.Any) -> dict[str, t.Any]:
    monkeypatch.setattr(netplan_vf, "Host", lambda root: host)
    arguments = {
        "content": CONTENT,
        "sysfs_root": host.node.sysfs,
        "system_root": str(host.node.root),
        "_ansible_remote_tmp": str(host.node.root / "tmp"),
        **options,
    }
    with patch_module_args(arguments), pytest.raises(SystemExit):
        netplan_vf.main()
    return t.cast("dict[str, t.Any]", json.loads(capfd.readouterr().out))


def test_begin_then_confirm(host: FakeHost, monkeypatch: pytest.MonkeyPatch, capfd: t.Any) -> None:
    begun = call(host, monkeypatch, capfd, transaction="t1")
    assert begun["changed"] is True
    assert begun["outcome"] == "pending"
    assert begun["diff"][0]["after"] == CONTENT
    confirmed = call(host, monkeypatch, capfd, transaction="t1", phase="confirm")
    assert confirmed["outcome"] == "confirmed"
    again = call(host, monkeypatch, capfd, transaction="t2")
    assert again["changed"] is False
    assert again["diff"] == []


def test_check_mode_writes_nothing(host: FakeHost, monkeypatch: pytest.MonkeyPatch, capfd: t.Any) -> None:
    said = call(host, monkeypatch, capfd, _ansible_check_mode=True)
    assert said["changed"] is True
    assert said["outcome"] == "unchanged"
    assert host.files() == {}


def test_a_refusal_is_one_message(host: FakeHost, monkeypatch: pytest.MonkeyPatch, capfd: t.Any) -> None:
    put(host.node.root, "/etc/netplan/40-cx7.yaml", CX7)
    said = call(host, monkeypatch, capfd)
    assert said["failed"] is True
    assert "40-cx7.yaml" in said["msg"]


@pytest.mark.parametrize("content", [None, "", " \n"])
def test_present_needs_a_content(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, capfd: t.Any, content: str | None
) -> None:
    """An empty variable must not remove the file."""
    put(host.node.root, "/etc/netplan/90-dgxspark-fabric.yaml", CONTENT)
    said = call(host, monkeypatch, capfd, content=content)
    assert said["failed"] is True
    assert "content" in said["msg"]
    assert list(host.files()) == ["90-dgxspark-fabric.yaml"]


def test_a_device_that_lacks_its_mtu_is_a_change(host: FakeHost, monkeypatch: pytest.MonkeyPatch, capfd: t.Any) -> None:
    put(host.node.root, "/etc/netplan/90-dgxspark-fabric.yaml", CONTENT)
    said = call(host, monkeypatch, capfd, devices=[{"name": "enp1s0f0np0", "mtu": 9000}])
    assert [(c["subject"], c["what"], c["before"], c["after"]) for c in said["changes"]] == [
        ("enp1s0f0np0", "MTU", 1500, 9000)
    ]
