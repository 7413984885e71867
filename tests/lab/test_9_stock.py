"""A Spark as it comes: a sudo that asks for a password, and no python3-venv.

`tools/with_lab.py 1 pytest tests/lab/test_9_stock.py -m long`. The nodes reach no package index: what a role installs is a package of
the test's own.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import pytest
from harness import Run, play, sh

pytestmark = pytest.mark.long

NODE, LIMIT = "spark1", "~^spark1$"
PASSWORD = "lab-password"
PACKAGE = """\
set -e; mkdir -p /root/repo/made/DEBIAN; cd /root/repo
printf 'Package: lab-venv\\nVersion: 1\\nArchitecture: all\\nMaintainer: lab <lab@example.com>\\nDescription: nothing\\n' >made/DEBIAN/control
dpkg-deb -b made lab-venv.deb >/dev/null
size=$(stat -c %s lab-venv.deb) sum=$(sha256sum lab-venv.deb | cut -d' ' -f1)
{ cat made/DEBIAN/control; printf 'Filename: ./lab-venv.deb\\nSize: %s\\nSHA256: %s\\n' "$size" "$sum"; } >Packages
echo 'deb [trusted=yes] file:/root/repo ./' >/etc/apt/sources.list.d/lab.list
apt-get update -qq -o Dir::Etc::sourcelist=sources.list.d/lab.list -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root
"""


@pytest.fixture(scope="module", autouse=True)
def an_owner() -> Iterator[None]:
    sh(
        NODE,
        "useradd -m -s /bin/bash owner; mkdir -p ~owner/.ssh; cp ~/.ssh/authorized_keys ~owner/.ssh/; chown -R owner: ~owner/.ssh;"
        f" echo owner:{PASSWORD} | chpasswd; echo 'owner ALL=(ALL) ALL' >/etc/sudoers.d/owner; chmod 440 /etc/sudoers.d/owner",
    )
    yield
    sh(NODE, "rm -f /etc/sudoers.d/owner; userdel -rf owner", check=False)


def as_owner(playbook: str, *arguments: str) -> Run:
    return play(playbook, "-e", "ansible_user=owner", "-e", "ansible_become=true", *arguments, limit=LIMIT)


@pytest.mark.parametrize(
    "playbook", ["site.yml", "playbooks/plan.yml", "playbooks/doctor.yml", "playbooks/teardown.yml"]
)
def test_without_the_password_the_way_out_is_named(playbook: str) -> None:
    run = as_owner(playbook, *(("--tags", "fabric") if "site" in playbook else ()))
    assert run.code != 0
    assert "password" in run.output, run.output
    assert "-K" in run.output, run.output
    bare = [line for line in run.output.splitlines() if "sudo password" in line and "-K" not in line]
    assert not bare, run.output


def test_with_the_password_the_fabric_is_made_and_taken_down(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    asked = ("--become-password-file", str(file))  # what -K asks for
    for playbook, tags in (
        ("site.yml", ("--tags", "fabric")),
        ("site.yml", ("--tags", "fabric")),
        ("playbooks/teardown.yml", ()),
    ):
        run = as_owner(playbook, *tags, *asked)
        assert run.code == 0, run.output
        assert PASSWORD not in run.output


def hub_python(folder: pathlib.Path, *arguments: str) -> Run:
    book = folder / "hub.yml"
    role = {"name": "dgxspark.cluster.model_weights", "tasks_from": "hub_python.yml", "public": True}
    tasks = [{"ansible.builtin.include_role": role, "vars": {"model_weights_source": ""}}]
    book.write_text(json.dumps([{"hosts": "dgx", "gather_facts": False, "become": True, "tasks": tasks}]))
    return play(str(book), *arguments, limit=LIMIT)


def test_what_makes_virtual_environments_is_installed_or_named(tmp_path: pathlib.Path) -> None:
    assert "No module named 'ensurepip'" in sh(NODE, "python3 -c 'import ensurepip' 2>&1", check=False)
    run = hub_python(tmp_path)
    assert run.code != 0
    said = " ".join(run.output.split())
    assert "The node needs the package python3-venv and access to a package index" in said, run.output
    sh(NODE, PACKAGE)
    hub_python(tmp_path, "-e", "model_weights_venv_package=lab-venv")
    assert sh(NODE, "dpkg-query -W -f '${Status}' lab-venv") == "install ok installed"
