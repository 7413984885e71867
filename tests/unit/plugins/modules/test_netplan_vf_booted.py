"""netplan_vf against a real systemd, networkd and netplan, on machines in namespaces: what it advises is done, and then it ends well."""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import typing as t
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
PENDING = "/var/lib/dgxspark/netplan/pending"
FILE = "/etc/netplan/95-change.yaml"
STANZA = {"match": {"name": "enp9s0"}, "addresses": ["192.0.2.7/24"], "link-local": []}
CHANGE = json.dumps({"network": {"version": 2, "renderer": "networkd", "ethernets": {"change": STANZA}}})


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[booted.Machine]:
    place = tmp_path_factory.mktemp("booted")
    with booted.mounted(place / "image") as image, booted.Machine(8, image, place / "one") as one:
        yield one


@pytest.fixture
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


@pytest.mark.usefixtures("bare")
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


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("fault", [FULL, READ_ONLY], ids=["full", "read-only"])
def test_where_nothing_of_ours_is_teardown_passes_on_such_a_disk(
    machine: booted.Machine, tmp_path: pathlib.Path, fault: str
) -> None:
    machine.run(fault)
    code, said = play(machine, tmp_path, None)
    assert code == 0 and "changed=0" in said, said


# What a router's advertisement does that comes after netplan has taken the addresses away, and before NetworkManager looks.
ADVERTISED = (
    "d=/run/systemd/system/NetworkManager.service.d; mkdir -p $d; printf '[Service]\\nExecStartPre=-/usr/sbin/ip address add"
    " 2001:db8::5/64 dev enP7s7\\n' >$d/advertised.conf; systemctl daemon-reload"
)


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[booted.Machine]:
    place = tmp_path_factory.mktemp("managed")
    with booted.mounted(place / "image", "networkmanager") as image, booted.Machine(9, image, place / "one") as one:
        one.run("netplan apply")
        yield one


def test_networkmanager_does_not_leave_the_management_to_an_advertised_address(
    managed: booted.Machine, tmp_path: pathlib.Path
) -> None:
    """Without a hand, `netplan apply` loses the management then, and so does the one of the rollback."""
    managed.run(ADVERTISED)
    code, said = play(managed, tmp_path, CHANGE.replace("networkd", "NetworkManager"))
    assert code == 0, said
    assert f"{managed.address}/24" in managed.run("ip -br -4 address show enP7s7")
    code, said = play(managed, tmp_path, None)
    assert code == 0, said


def test_nor_does_the_rollback_of_a_change_that_nobody_confirms(
    managed: booted.Machine, tmp_path: pathlib.Path
) -> None:
    managed.run(ADVERTISED)
    before = managed.run("ls /etc/netplan")

    def cut() -> None:
        """From the change on, until it is rolled back, nothing that we send reaches the machine."""
        lost = ("ip", "route", "add", "unreachable", f"{managed.address}/32")
        until(lambda: managed.run(f"cat {PENDING} 2>/dev/null", check=False) != "")
        subprocess.run(lost, check=True)
        try:
            until(lambda: managed.run(f"cat {PENDING} 2>/dev/null", check=False) == "")
        finally:
            subprocess.run([*lost[:2], "del", *lost[3:]], check=True)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        cutting = pool.submit(cut)
        code, said = play(managed, tmp_path, CHANGE.replace("networkd", "NetworkManager"))
        cutting.result()
    assert code != 0 and "cut this node off" in said, said
    assert managed.run("ls /etc/netplan") == before
    assert f"{managed.address}/24" in managed.run("ip -br -4 address show enP7s7")


def until(holds: t.Callable[[], bool], seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.3)
