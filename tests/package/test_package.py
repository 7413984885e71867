"""The built collection installs, and the installed copy runs from anywhere and finds its own data."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import pytest
import yaml

from ansible_collections.dgxspark.cluster.tools import release

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(sys.executable).parent


def run(*command: object, cwd: pathlib.Path, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [str(BIN / str(command[0])), *map(str, command[1:])]
    env = {k: v for k, v in os.environ.items() if k not in ("ANSIBLE_CONFIG", "ANSIBLE_COLLECTIONS_PATH")}
    return subprocess.run(
        words, cwd=cwd, check=False, capture_output=True, text=True, env={**env, "ANSIBLE_NOCOLOR": "1", **environment}
    )


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Build as a release is built: from a staged copy, so that no stray file gets in, and nothing is left behind in the checkout."""
    return release.build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="session")
def installed(built: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Install it beside the collections it depends on; return the folder for ANSIBLE_COLLECTIONS_PATH."""
    home = tmp_path_factory.mktemp("installed")
    source = pathlib.Path(os.environ["ANSIBLE_COLLECTIONS_PATH"]) / "ansible_collections"
    # No other collection is there: what galaxy.yml does not name is not needed.
    shutil.copytree(source / "kubernetes", home / "ansible_collections" / "kubernetes")
    done = run(
        *("ansible-galaxy", "collection", "install", built, "-p", home, "--offline"),
        cwd=home,
        ANSIBLE_COLLECTIONS_PATH=str(home),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return home


def test_the_checksum_beside_it_is_its_own(built: pathlib.Path) -> None:
    digest = hashlib.sha256(built.read_bytes()).hexdigest()
    assert (built.parent / "SHA256SUMS").read_text(encoding="utf-8") == f"{digest}  {built.name}\n"
    assert re.fullmatch(rf"dgxspark-cluster-{release.VERSION}\.tar\.gz", built.name)


def test_the_archive_holds_what_runs_and_not_what_builds_it(built: pathlib.Path) -> None:
    with tarfile.open(built) as archive:
        names = archive.getnames()
    top = {name.split("/")[0] for name in names}
    assert {
        "galaxy.yml",
        "tests",
        "molecule",
        ".config",
        "tools",
        ".ci",
        "collections",
        ".venv",
        "Makefile",
    }.isdisjoint(top)
    assert not [name for name in names if name.startswith("changelogs/fragments")]
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert pictures and set(pictures) <= set(names), "README shows pictures that an installed copy lacks"
    assert {"knowledge", "plugins", "roles", "playbooks", "meta", "LICENSE", "README.md", "lab"} <= top


def test_an_execution_environment_gets_what_the_collection_names(built: pathlib.Path) -> None:
    """ansible-builder reads the collection's own list relative to the collection's folder; it is run where it is installed."""
    own = yaml.safe_load((ROOT / "meta" / "execution-environment.yml").read_text(encoding="utf-8"))
    with tarfile.open(built) as archive:
        named = archive.extractfile(own["dependencies"]["python"])
        assert named and b"kubernetes" in named.read()
    definition = ROOT / "execution-environment.yml"
    made = yaml.safe_load(definition.read_text(encoding="utf-8"))
    (source,) = made["dependencies"]["galaxy"]["collections"]
    assert f"git+{source['name']},{source['version']}" in (ROOT / "README.md").read_text(encoding="utf-8")
    builder = shutil.which("ansible-builder")
    if not builder:
        pytest.skip("ansible-builder: not run. It is not in PATH")
    context = built.parent / "context"
    done = subprocess.run(
        [builder, "create", "-f", definition, "-c", context], check=False, capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr


def inventory(folder: pathlib.Path) -> pathlib.Path:
    shutil.copytree(ROOT / "inventories" / "example", folder / "inventory")
    return folder / "inventory"


@pytest.mark.parametrize("playbook", ["dgxspark.cluster.plan", "dgxspark.cluster.site"])
def test_the_installed_playbooks_run_from_anywhere(
    installed: pathlib.Path, tmp_path: pathlib.Path, playbook: str
) -> None:
    listed = run(
        *("ansible-playbook", playbook, "-i", inventory(tmp_path), "-l", "spark[1:4]", "--list-tasks", "-vv"),
        cwd=tmp_path,
        ANSIBLE_COLLECTIONS_PATH=str(installed),
    )
    assert listed.returncode == 0, listed.stderr
    assert str(installed / "ansible_collections" / "dgxspark" / "cluster" / "playbooks") in listed.stdout
    assert str(ROOT / "playbooks") not in listed.stdout
    assert str(ROOT / "roles") not in listed.stdout


def test_the_installed_plan_finds_its_data(installed: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """No node of the example inventory answers: the plan is made from the inventory and the hardware data alone."""
    plan = tmp_path / "plan.json"
    done = run(
        *("ansible-playbook", "dgxspark.cluster.plan", "-i", inventory(tmp_path), "-l", "spark[1:4]"),
        *("-e", "dgxspark_plan_file=plan.json", "-e", "ansible_host=127.0.0.1", "-e", "ansible_port=1"),
        cwd=tmp_path,
        ANSIBLE_COLLECTIONS_PATH=str(installed),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(json.loads(plan.read_text())["hosts"]) == ["spark1", "spark2", "spark3", "spark4"]


def test_an_installed_file_names_a_schema_that_is_there(installed: pathlib.Path) -> None:
    collection = installed / "ansible_collections" / "dgxspark" / "cluster"
    files = [*collection.glob("knowledge/*/*.yml"), *collection.glob("roles/k8s_dgx/model_profiles/*.yml")]
    named = {
        path: re.findall(r"(?m)^# yaml-language-server: \$schema=(.*)$", path.read_text("utf-8")) for path in files
    }
    without = {path.parent.name for path, found in named.items() if not found}
    assert without == {"model_classes"}
    assert all((path.parent / place).is_file() for path, found in named.items() for place in found)


def test_a_plain_checkout_runs_too(tmp_path: pathlib.Path) -> None:
    listed = run(
        *("ansible-playbook", "site.yml", "-i", inventory(tmp_path), "-l", "spark[1:4]", "--list-hosts"),
        cwd=ROOT,
        ANSIBLE_COLLECTIONS_PATH=os.environ["ANSIBLE_COLLECTIONS_PATH"],
        ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"),
    )
    assert listed.returncode == 0, listed.stderr
    assert "hosts (4):" in listed.stdout
