"""The role nccl as it is run, against a folder in place of the node's file system."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl import host as nccl
from ansible_collections.dgxspark.cluster.tests.support.nccl_role import Cluster
from ansible_collections.dgxspark.cluster.tests.unit.owner import NO_ANSIBLE, can_run

pytestmark = pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)


def test_a_run_a_second_one_and_the_way_back(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path)
    bare = cluster.tree()
    code, changed, output = cluster.run("--check", "--diff")
    assert code == 0, output
    assert changed == {"spark1": 1, "spark2": 1}
    assert "+NCCL_NET=IB" in output
    assert cluster.tree() == bare

    code, changed, output = cluster.run("--tags", "nccl")
    assert code == 0, output
    assert changed == {"spark1": 1, "spark2": 1}
    assert "Limits have changed" in output
    env = cluster.read("spark2", nccl.CONF)
    assert env["NCCL_IB_HCA"] == "=roce0v1:1,roce1v1:1"
    assert env["NCCL_SOCKET_IFNAME"] == "=enp1s0f0np0v1"
    assert "NCCL_IB_GID_INDEX" not in env
    more = cluster.read("spark2", nccl.ENVIRONMENT)
    assert set(more) - set(env) == {"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "SGLANG_HOST_IP", "VLLM_HOST_IP"}
    assert all(more.values())

    code, changed, output = cluster.run()
    assert (code, changed) == (0, {"spark1": 0, "spark2": 0}), output
    assert "Limits have changed" not in output

    code, changed, output = cluster.run(nccl_state="absent")
    assert (code, changed) == (0, {"spark1": 1, "spark2": 1}), output
    assert cluster.tree() == bare
    code, changed, output = cluster.run(nccl_state="absent")
    assert (code, changed) == (0, {"spark1": 0, "spark2": 0}), output


@pytest.mark.more
def test_somebody_else_s_file_is_named_and_nothing_is_done_there(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path)
    own = tmp_path / "spark1" / nccl.CONF.lstrip("/")
    own.write_text("NCCL_DEBUG=INFO\n", encoding="utf-8")
    code, changed, output = cluster.run()
    assert code != 0
    assert changed == {"spark1": 0, "spark2": 1}
    assert f"{nccl.CONF}: already present, and not written by this role" in " ".join(output.split())
    assert [path.name for path in (tmp_path / "spark1").rglob("*")] == ["etc", "nccl.conf"]
    code, _changed, output = cluster.run(nccl_environment=False)
    assert code == 0, output
    assert own.read_text(encoding="utf-8") == "NCCL_DEBUG=INFO\n"


@pytest.mark.more
def test_in_check_mode_before_there_are_vfs_it_says_what_was_not_run(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path, vfs=0)
    code, _changed, output = cluster.run("--check")
    assert code == 0, output
    assert "not run. In check mode" in output
    code, _changed, output = cluster.run()
    assert code != 0
    assert "is not known. Create the VFs" in " ".join(output.split())


@pytest.mark.more
def test_in_a_triangle_start_up_goes_over_the_interface_that_ansible_uses(tmp_path: pathlib.Path) -> None:
    """Where ansible_host is a name: over the only interface besides the fabric's."""
    cluster = Cluster(tmp_path, "triangle", 3)
    tree = yaml.safe_load((tmp_path / "inventory.yml").read_text(encoding="utf-8"))
    named = tree["all"]["children"]["dgx"]["hosts"]["spark2"]
    named["ansible_host"] = "spark2.example"
    named["dgxspark_roce"]["other"] = [each for each in named["dgxspark_roce"]["other"] if each["name"] == "enP7s7"]
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    code, _changed, output = cluster.run()
    assert code == 0, output
    for host in ("spark2", "spark3"):
        env = cluster.read(host, nccl.CONF)
        assert env["NCCL_SOCKET_IFNAME"] == "=enP7s7"
        assert env["NCCL_IB_SUBNET_AWARE_ROUTING"] == "1"


@pytest.mark.long
def test_the_owner_s_choices_reach_the_files(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path)
    code, _changed, output = cluster.run(
        nccl_vf_index=0,
        nccl_merge_nics=True,
        nccl_version="2.30.4",
        nccl_extra_environment={"NCCL_IB_TC": 106},
        nccl_memlock=None,
        nccl_stack=None,
    )
    assert code == 0, output
    env = cluster.read("spark1", nccl.CONF)
    assert env["NCCL_IB_HCA"] == "=roce0v0:1,roce1v0:1"
    assert (env["NCCL_IB_MERGE_NICS"], env["NCCL_NVLS_ENABLE"], env["NCCL_IB_TC"]) == ("1", "0", "106")
    assert not (tmp_path / "spark1" / nccl.LIMITS.lstrip("/")).exists()
    assert not (tmp_path / "spark1" / nccl.SYSTEMD.lstrip("/")).exists()


@pytest.mark.more
@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"nccl_extra_environment": {"NCCL_NET_PLUGIN": ""}}, "NCCL_NET_PLUGIN is empty"),
        ({"nccl_transport": "tcp"}, "nccl_transport"),
    ],
)
def test_what_cannot_be_is_one_error(tmp_path: pathlib.Path, variables: dict[str, t.Any], told: str) -> None:
    cluster = Cluster(tmp_path)
    bare = cluster.tree()
    code, _changed, output = cluster.run(**variables)
    assert code != 0
    assert told in " ".join(output.split())
    assert cluster.tree() == bare
