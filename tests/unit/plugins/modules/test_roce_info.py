"""The module roce_info, on a fake node."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Node, from_plain
from ansible_collections.dgxspark.cluster.plugins.modules import roce_info
from ansible_collections.dgxspark.cluster.tests.unit.fakes import FakeNode, spark


def call(node: FakeNode, monkeypatch: pytest.MonkeyPatch, capfd: t.Any, **options: t.Any) -> dict[str, t.Any]:
    monkeypatch.setattr(roce_info, "module_runner", lambda module: node.run)
    arguments = {"device_ids": node.device_ids, "sysfs_root": node.sysfs, **node.roots, **options}
    with patch_module_args(arguments), pytest.raises(SystemExit):
        roce_info.main()
    return t.cast(dict[str, t.Any], json.loads(capfd.readouterr().out))


@pytest.mark.parametrize("check", [False, True])
def test_it_returns_the_node(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: t.Any, check: bool
) -> None:
    node = spark(tmp_path, vfs=2)
    (tmp_path / "etc/netplan/a.yaml").write_text("network: {renderer: NetworkManager}\n")
    result = call(
        node, monkeypatch, capfd, files=["/etc/netplan/a.yaml"], units=["a.service"], _ansible_check_mode=check
    )
    assert result["changed"] is False
    found = from_plain(Node, result["roce"])
    assert [len(function.vfs) for function in found.functions] == [2, 2, 2, 2]
    assert found.netplan.renderer == "NetworkManager"
    assert found.files[0].sha256 and found.units == {"a.service": "not-found"}


def test_an_expected_failure_is_a_message(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: t.Any
) -> None:
    node = spark(tmp_path, vfs=0)
    node.run.on(["ip", "-j", "-d", "addr", "show"], (1, "", ""))
    result = call(node, monkeypatch, capfd)
    assert result["failed"] and "iproute2" in result["msg"] and "Traceback" not in json.dumps(result)


def test_commands_run_in_the_c_locale_and_absent_ones_do_no_harm(tmp_path: pathlib.Path, capfd: t.Any) -> None:
    """With the module's real runner: this machine has `ip`, and no fabric."""
    arguments = {"device_ids": ["ffff:ffff"], "netns_root": str(tmp_path), "system_root": str(tmp_path)}
    with patch_module_args(arguments), pytest.raises(SystemExit):
        roce_info.main()
    result = json.loads(capfd.readouterr().out)
    assert result.get("failed") or result["roce"]["functions"] == []
    assert "Traceback" not in json.dumps(result)


def test_without_root_the_way_out_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capfd: t.Any
) -> None:
    def refused(*_arguments: object, **_named: object) -> None:
        raise PermissionError(13, "Permission denied", "/run/dgxspark-runs.json")

    monkeypatch.setattr(roce_info, "read_node", refused)
    told = call(FakeNode(tmp_path), monkeypatch, capfd)
    assert told["failed"] and told["msg"].startswith("/run/dgxspark-runs.json: Permission denied; ")
    assert "ansible_become: true" in told["msg"] and "-K" in told["msg"]
