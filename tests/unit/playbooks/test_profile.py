"""profile.yml as an owner runs it: a local folder, a cached model on a node, the file that is written and kept."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import find_profile, profile_text
from ansible_collections.dgxspark.cluster.tests.support.inventories import Inventory, shown
from ansible_collections.dgxspark.cluster.tests.support.playbooks import collections_path
from ansible_collections.dgxspark.cluster.tests.unit.model_configs import PUBLIC
from ansible_collections.dgxspark.cluster.tests.unit.owner import NO_ANSIBLE, PROGRAM, ROOT, can_run

MODEL = "openai/gpt-oss-120b"
COMMIT = "c" * 40
ASKED = {"dgxspark_model": "./model", "dgxspark_profile_model": MODEL, "dgxspark_profile_to": "own.yml"}

pytestmark = pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with an inventory whose first Spark is this machine, a model's folder, and a node's cache."""
    folder = tmp_path_factory.mktemp("owner")
    inventory = Inventory()
    for facts in inventory.hosts.values():
        facts["dgxspark_roce"] = shown(110)
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
    inventory.hosts["spark1"] |= here
    inventory.write(folder / "inventory")
    for place in ("model", f"hub/models--openai--gpt-oss-120b/snapshots/{COMMIT}"):
        (folder / place).mkdir(parents=True)
        (folder / place / "config.json").write_text(json.dumps(PUBLIC[MODEL][0]), encoding="utf-8")
    (folder / "hub/models--openai--gpt-oss-120b/refs").mkdir()
    (folder / "hub/models--openai--gpt-oss-120b/refs/main").write_text(COMMIT, encoding="utf-8")
    return folder


def run(owner: pathlib.Path, *options: str, inventory: str = "inventory", **extra: t.Any) -> tuple[int, str]:
    done = subprocess.run(
        [PROGRAM, ROOT / "playbooks" / "profile.yml", "-i", inventory, "-e", json.dumps(extra), *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=owner,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": collections_path(), "ANSIBLE_NOCOLOR": "1"},
    )
    output = done.stdout + done.stderr
    assert "Traceback" not in output
    return done.returncode, output


@pytest.mark.more
def test_in_check_mode_it_is_shown_and_not_written(owner: pathlib.Path) -> None:
    code, output = run(owner, "--check", "--diff", **ASKED)
    assert code == 0, output
    assert "+model: openai/gpt-oss-120b" in output
    assert "verdict   UNPROVEN" in output
    assert not (owner / "own.yml").exists()


@pytest.mark.older_core
def test_a_folder_s_profile_is_written(owner: pathlib.Path) -> None:
    code, output = run(owner, **ASKED)
    assert code == 0, output
    assert "verdict   UNPROVEN" in output
    written = owner / "own.yml"
    assert written.stat().st_mode & 0o777 == 0o644
    made = yaml.safe_load(written.read_text(encoding="utf-8"))
    assert find_profile(made)["facts"]["moe"]["experts"] == 128
    assert not profile_text.edited(written.read_text(encoding="utf-8"))


@pytest.mark.long
def test_it_is_written_once_and_an_owner_s_changes_are_kept(owner: pathlib.Path) -> None:
    asked = {**ASKED, "dgxspark_profile_to": "kept.yml"}
    written = owner / "kept.yml"
    assert run(owner, **asked)[0] == 0
    code, output = run(owner, **asked)
    assert code == 0
    assert "changed=0" in output.partition("spark1 ")[2]
    edited = written.read_text(encoding="utf-8") + "port: 30001\n"
    written.write_text(edited, encoding="utf-8")
    code, output = run(owner, **asked)
    assert code == 2
    assert "dgxspark_profile_overwrite=true" in " ".join(output.split())
    assert written.read_text(encoding="utf-8") == edited


@pytest.mark.more
def test_a_node_s_cached_model_is_read_there(owner: pathlib.Path) -> None:
    code, output = run(
        owner,
        dgxspark_model=MODEL,
        dgxspark_model_node="spark1",
        dgxspark_model_cache=str(owner / "hub"),
        k8s_dgx_serving={"cache_dir": str(owner / "none")},
        dgxspark_profile_to="cached.yml",
    )
    assert code == 0, output
    made = yaml.safe_load((owner / "cached.yml").read_text(encoding="utf-8"))
    assert (made["model"], made["revision"]) == (MODEL, COMMIT)


@pytest.mark.more
def test_so_many_sparks_are_planned_whatever_the_inventory_has(owner: pathlib.Path) -> None:
    code, output = run(owner, **ASKED | {"dgxspark_profile_to": "two.yml"}, sparks=2, dgxspark_profile_nodes=2)
    assert code == 0, output
    assert "verdict   UNPROVEN" in output and "spark2" in output
    assert yaml.safe_load((owner / "two.yml").read_text(encoding="utf-8"))["parallel"]["nodes"] == 2


@pytest.mark.more
def test_an_inventory_that_is_named_must_be_there(owner: pathlib.Path) -> None:
    code, output = run(owner, **ASKED, inventory="inventroy")
    assert code != 0
    assert "-i inventroy: there is no such file or folder" in " ".join(output.split())


@pytest.mark.more
def test_no_model_is_one_sentence(owner: pathlib.Path) -> None:
    code, output = run(owner)
    assert code == 2
    assert "Name a model." in output
