"""netplan_vf against a real systemd, networkd and netplan, on machines in namespaces: what it advises is done, and then it ends well."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ansible_collections.dgxspark.cluster.tests.support import booted

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("mmdebstrap"), reason="not run: needs root and the lab's image"
    ),
]

ROOT = pathlib.Path(__file__).resolve().parents[4]
FILE = "/etc/netplan/95-change.yaml"
STANZA = {"match": {"name": "enp9s0"}, "addresses": ["192.0.2.7/24"], "link-local": []}
CHANGE = json.dumps({"network": {"version": 2, "renderer": "networkd", "ethernets": {"change": STANZA}}})


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[booted.Machine]:
    place = tmp_path_factory.mktemp("booted")
    with booted.mounted(place / "image") as image, booted.Machine(8, image, place / "one") as one:
        yield one


@pytest.fixture(autouse=True)
def bare(machine: booted.Machine) -> Iterator[None]:
    yield
    machine.run(
        f"rm -f /fill; mount -o remount,bind,rw / 2>/dev/null; umount /etc/netplan 2>/dev/null; rm -f {FILE}; netplan apply"
    )


def play(machine: booted.Machine, folder: pathlib.Path, content: str | None, **more: str) -> tuple[int, str]:
    """Change netplan's files as a playbook does, or take ours away; return the exit status and what was said."""
    values = {"change_timeout": 30, **({"change_content": content} if content else {})}
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    at = booted.inventory(machine, folder)
    done = subprocess.run(
        [str(program), "tests/lab/playbooks/netplan_change.yml", "-i", str(at), "-e", json.dumps(values)],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), **more},
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


FULL = "dd if=/dev/zero of=/fill bs=1M 2>/dev/null; dd if=/dev/zero of=/fill bs=1 oflag=append conv=notrunc 2>/dev/null; true"


READ_ONLY = "mount -o remount,bind,ro /"


@pytest.mark.parametrize("pipelining", ["1", "0"])
@pytest.mark.parametrize(
    ("fault", "says", "remedy"),
    [(FULL, "disk is full", "rm /fill"), (READ_ONLY, "read-only", "mount -o remount,bind,rw /")],
    ids=["full", "read-only"],
)
def test_a_disk_that_takes_nothing_is_named_and_teardown_ends_well_once_it_does(
    machine: booted.Machine, tmp_path: pathlib.Path, fault: str, says: str, remedy: str, pipelining: str
) -> None:
    code, said = play(machine, tmp_path, CHANGE)
    assert code == 0, said
    before = machine.run(f"sha256sum {FILE}")
    machine.run(fault)
    code, said = play(machine, tmp_path, None, ANSIBLE_PIPELINING=pipelining)
    assert code != 0 and says in said and "Traceback" not in said, said
    assert machine.run(f"sha256sum {FILE}") == before
    machine.run(remedy)
    code, said = play(machine, tmp_path, None)
    assert code == 0, said
    assert machine.run("ls /etc/netplan").split() == ["01-mgmt.yaml"]
    assert "192.0.2.7" not in machine.run("ip -br address show enp9s0")


@pytest.mark.parametrize("fault", [FULL, READ_ONLY], ids=["full", "read-only"])
def test_where_nothing_of_ours_is_teardown_passes_on_such_a_disk(
    machine: booted.Machine, tmp_path: pathlib.Path, fault: str
) -> None:
    machine.run(fault)
    code, said = play(machine, tmp_path, None)
    assert code == 0 and "changed=0" in said, said
