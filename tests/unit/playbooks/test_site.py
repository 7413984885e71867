"""site.yml and teardown.yml: without the K3s groups they contact no node for K3s; without a node, no model is served."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.facts import read_node
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import to_plain
from ansible_collections.dgxspark.cluster.tests.unit.fakes import spark
from ansible_collections.dgxspark.cluster.tests.unit.owner import NO_ANSIBLE, PROGRAM, ROOT, can_run

DOWN = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_ssh_common_args": "-o ConnectTimeout=2"}
HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}

pytestmark = pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)


def run(
    tmp_path: pathlib.Path,
    playbook: str,
    *arguments: str,
    spark1: dict[str, object] | None = None,
    more: dict[str, object] | None = None,
) -> tuple[int, str]:
    """Run a playbook for two Sparks, of which spark2 does not answer. more: groups of the inventory."""
    place = tmp_path / "collections" / "ansible_collections" / "dgxspark"
    place.mkdir(parents=True)
    (place / "cluster").symlink_to(ROOT)
    (tmp_path / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")
    groups = {
        "spark_controller": {"hosts": {"controller": HERE}},
        "dgx": {"hosts": {"spark1": spark1 or DOWN, "spark2": DOWN}},
        **(more or {}),
    }
    inventory = {"all": {"vars": {"dgxspark_fabric": {"topology": "switch"}}, "children": groups}}
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
    done = subprocess.run(
        [str(PROGRAM), "-i", "inventory.yml", str(ROOT / "playbooks" / playbook), *arguments],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": f"{tmp_path}/collections:{os.environ.get('ANSIBLE_COLLECTIONS_PATH', '')}",
            "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"),
        },
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.more
@pytest.mark.parametrize(
    ("playbook", "tags", "said"),
    [("site.yml", "k3s,memory_guard", "K3s and memory guard: skipped."), ("teardown.yml", "k3s,memory_guard", "")],
)
def test_without_the_groups_no_node_is_reached(tmp_path: pathlib.Path, playbook: str, tags: str, said: str) -> None:
    code, output = run(tmp_path, playbook, "--tags", tags)
    assert code == 0, output
    assert said in output
    assert "unreachable=1" not in output and "UNREACHABLE" not in output
    assert "Could not match supplied host pattern" not in output


@pytest.mark.older_core
@pytest.mark.parametrize("tags", [pytest.param("platform", marks=pytest.mark.more), "serve"])
def test_a_node_that_this_run_has_lost_is_named_before_the_cluster_is_touched(
    tmp_path: pathlib.Path, tags: str
) -> None:
    node = spark(tmp_path / "node", vfs=2)
    seen = read_node(Sysfs(node.sysfs), node.run, device_ids=node.device_ids, **node.roots)
    chosen = ["-e", "k8s_dgx_model_profile=glm-4.7-nvfp4", "-e", "k8s_dgx_kubeconfig=/nonexistent"]
    here = {**HERE, "dgxspark_roce": to_plain(seen)}
    code, output = run(tmp_path, "site.yml", "--tags", tags, *chosen, spark1=here)
    assert code != 0
    said = " ".join(output.split())
    assert "spark2 was lost in this run" in said, output
    assert "/nonexistent" not in said


@pytest.mark.more
@pytest.mark.parametrize("playbook", ["site.yml", "teardown.yml"])
def test_a_server_that_is_no_spark_can_be_reached_alone(tmp_path: pathlib.Path, playbook: str) -> None:
    more = {"k3s_server": {"hosts": {"server": DOWN}}, "k3s_agent": {"children": {"dgx": {}}}}
    code, output = run(tmp_path, playbook, "-l", "server", "--tags", "k3s", more=more)
    assert "leaves no host" not in output, output
    assert code != 0 and re.search(r"server +: ok=\d+ +changed=0 +unreachable=1", output), output


@pytest.mark.more
def test_the_parts_that_are_for_sparks_are_left_out_where_only_the_server_is_reached(tmp_path: pathlib.Path) -> None:
    more = {"k3s_server": {"hosts": {"server": DOWN}}, "k3s_agent": {"children": {"dgx": {}}}}
    chosen = ("-e", "k8s_dgx_model_profile=glm-4.7-nvfp4")
    code, output = run(tmp_path, "site.yml", "-l", "server", "--skip-tags", "k3s", *chosen, more=more)
    assert code == 0, output
    assert "unreachable=1" not in output


@pytest.mark.more
def test_what_one_node_would_refuse_is_found_before_any_node_is_touched(tmp_path: pathlib.Path) -> None:
    """spark2 has a VLAN on a function. Neither node answers: whoever is touched is reported as unreachable."""
    hosts = {}
    for number in (1, 2):
        node = spark(tmp_path / f"node{number}", vfs=0)
        for at, device in enumerate(node.devices.values()):
            device.mac = f"4c:bb:47:00:0{number}:{at:02x}"
        node.sync()
        seen = read_node(Sysfs(node.sysfs), node.run, device_ids=node.device_ids, **node.roots)
        hosts[f"spark{number}"] = {**DOWN, "dgxspark_roce": to_plain(seen)}
    name = hosts["spark2"]["dgxspark_roce"]["functions"][0]["netdev"]["name"]
    stanzas = [{"kind": "ethernets", "id": name}, {"kind": "vlans", "id": "vlan10", "refers": [name]}]
    hosts["spark2"]["dgxspark_roce"]["netplan"]["files"] = [
        {"path": "/etc/netplan/40-mine.yaml", "sha256": "0", "mode": "0600", "stanzas": stanzas}
    ]
    more = {"dgx": {"hosts": hosts}}
    code, output = run(tmp_path, "site.yml", "--tags", "fabric", "-e", "netplan_vf_foreign_stanzas=absorb", more=more)
    said = " ".join(output.split())
    assert code != 0 and "No host is changed." in said and "vlans.vlan10 in /etc/netplan/40-mine.yaml" in said, output
    assert "UNREACHABLE" not in output


@pytest.mark.more
@pytest.mark.parametrize("playbook", ["site.yml", "teardown.yml"])
def test_a_variable_of_a_later_role_is_judged_before_any_node_is_touched(tmp_path: pathlib.Path, playbook: str) -> None:
    code, output = run(tmp_path, playbook, "-e", "netplan_vf_rollback_timeout=soon")
    said = " ".join(output.split())
    assert code != 0 and "netplan_vf_rollback_timeout (spark1 and" in said and "soon" in said, output
    assert "UNREACHABLE" not in output


@pytest.mark.more
def test_in_check_mode_nothing_is_proven_of_vfs_that_do_not_exist_yet(tmp_path: pathlib.Path) -> None:
    """As site.yml imports it, on nodes where its first play would change something."""
    changed = {**DOWN, "__sriov_roce_changes": {"changes": [{"subject": "p0f0", "what": "VFs"}], "findings": []}}
    more = {"dgx": {"hosts": {"spark1": changed, "spark2": DOWN}}}
    code, output = run(tmp_path, "verify.yml", "--check", "-e", "guard_passed=true", more=more)
    assert code == 0 and "Verify: not run. In check mode" in output, output
    assert "UNREACHABLE" not in output and "link is down" not in output


@pytest.mark.older_core
def test_a_single_spark_s_fabric_ends_with_an_answer(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path / "node", vfs=0)
    seen = read_node(Sysfs(node.sysfs), node.run, device_ids=node.device_ids, **node.roots)
    more = {"dgx": {"hosts": {"spark1": {**HERE, "dgxspark_roce": to_plain(seen)}}}}
    single = '{"dgxspark_fabric": {"topology": "single"}}'
    code, output = run(tmp_path, "site.yml", "--tags", "fabric", "-e", single, more=more)
    assert code == 0, output
    assert "there is no fabric to build" in output and "ansible-playbook dgxspark.cluster.models -e sparks=1" in output
