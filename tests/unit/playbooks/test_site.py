"""site.yml and teardown.yml without the groups of K3s: they say so, and reach no node for it."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(sys.executable).parent
DOWN = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_ssh_common_args": "-o ConnectTimeout=2"}
HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}

pytestmark = pytest.mark.skipif(not (BIN / "ansible-playbook").exists(), reason="ansible-playbook is not beside Python")


@pytest.mark.parametrize(
    ("playbook", "tags", "said"),
    [("site.yml", "k3s,memory_guard", "K3s and memory guard: skipped."), ("teardown.yml", "k3s,memory_guard", "")],
)
def test_without_the_groups_no_node_is_reached(tmp_path: pathlib.Path, playbook: str, tags: str, said: str) -> None:
    place = tmp_path / "collections" / "ansible_collections" / "dgxspark"
    place.mkdir(parents=True)
    (place / "cluster").symlink_to(ROOT)
    (tmp_path / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")
    groups = {"spark_controller": {"hosts": {"controller": HERE}}, "dgx": {"hosts": {"spark1": DOWN, "spark2": DOWN}}}
    inventory = {"all": {"vars": {"dgxspark_fabric": {"topology": "switch"}}, "children": groups}}
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
    done = subprocess.run(
        [str(BIN / "ansible-playbook"), "-i", "inventory.yml", str(ROOT / "playbooks" / playbook), "--tags", tags],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "collections"),
            "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"),
        },
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert said in output
    assert "unreachable=1" not in output and "UNREACHABLE" not in output
    assert "Could not match supplied host pattern" not in output
