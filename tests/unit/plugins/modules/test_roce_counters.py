"""The module roce_counters, on a tree like the kernel's."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.dgxspark.cluster.plugins.modules import roce_counters
from ansible_collections.dgxspark.cluster.tests.unit.fakes import spark


def call(sysfs: str, capfd: t.Any, **options: t.Any) -> dict[str, t.Any]:
    with patch_module_args({"sysfs_root": sysfs, **options}), pytest.raises(SystemExit):
        roce_counters.main()
    return t.cast(dict[str, t.Any], json.loads(capfd.readouterr().out))


@pytest.mark.parametrize("check", [False, True])
def test_it_returns_every_port_and_changes_nothing(tmp_path: pathlib.Path, capfd: t.Any, check: bool) -> None:
    node = spark(tmp_path, vfs=1)
    (hca, *_others) = sorted(path.name for path in pathlib.Path(node.sysfs, "class/infiniband").iterdir())
    folder = pathlib.Path(node.sysfs, "class/infiniband", hca, "ports/1/counters")
    folder.mkdir()
    (folder / "port_xmit_data").write_text("42\n")
    result = call(node.sysfs, capfd, _ansible_check_mode=check)
    assert result["changed"] is False
    (found,) = [entry for entry in result["counters"] if entry["values"]]
    assert (found["hca"], found["port"], found["values"]) == (hca, 1, {"port_xmit_data": 42})
    assert found["guid"]
    assert len(result["counters"]) > 1
    assert [entry["hca"] for entry in call(node.sysfs, capfd, hcas=[hca])["counters"]] == [hca]


def test_a_node_without_rdma_has_none(tmp_path: pathlib.Path, capfd: t.Any) -> None:
    assert call(str(tmp_path), capfd)["counters"] == []
