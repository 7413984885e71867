"""Changes of netplan that must not cut a node off: a wrong management address, a killed controller, a reboot.

Each ends with the files that the node had before, without intervention.
"""

from __future__ import annotations

import json
import os
import subprocess
import uuid

import pytest
from harness import BIN, ROOT, make_so, play, sh, wait_for

pytestmark = pytest.mark.long

NODE = "spark1"
LIMIT = "~^spark1$"
PLAYBOOK = "tests/lab/playbooks/netplan_change.yml"
FILES = "cd /etc/netplan && stat -c '%n %a %u %g' * && sha256sum *"
LEFT = (
    "ls /var/lib/dgxspark/netplan/pending /etc/systemd/system/dgxspark-netplan-rollback.service"
    " /etc/systemd/system/multi-user.target.wants/dgxspark-netplan-rollback.service 2>/dev/null;"
    " ls /run/systemd/transient 2>/dev/null | grep dgxspark-netplan; true"
)
# Moves the management interface to an address that cannot be reached.
CUT = {"match": {"name": "enP7s7"}, "addresses": ["10.0.2.99/24"], "link-local": []}
# A device that does not exist: netplan accepts it, and nothing happens.
HARMLESS = {"match": {"name": "enX0"}, "optional": True}


def content(stanza: dict[str, object]) -> str:
    tree = json.dumps({"network": {"version": 2, "ethernets": {"change": stanza}}})
    return json.dumps({"change_content": tree, "change_foreign": "absorb", "change_timeout": 90})


def begin_and_kill() -> None:
    """Start a change, and kill the controller's process group once it is pending on the node."""
    mark = f"lab_run={uuid.uuid4()}"
    command = [
        BIN / "ansible-playbook",
        PLAYBOOK,
        "-i",
        "inventories/lab",
        "-l",
        LIMIT,
        "-e",
        content(HARMLESS),
        "-e",
        mark,
    ]
    process = subprocess.Popen(
        [str(word) for word in command],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(
            lambda: sh(NODE, "cat /var/lib/dgxspark/netplan/pending 2>/dev/null; true") != "", 60, "a pending change"
        )
    finally:
        # Ansible's workers have sessions of their own: if only the parent died, one would go on and confirm.
        subprocess.run(["pkill", "-KILL", "-f", mark], check=True)
        process.wait()


@pytest.fixture
def before() -> str:
    make_so(limit=LIMIT)
    return sh(NODE, FILES)


def test_a_change_that_cuts_off_the_management_heals_by_itself(before: str) -> None:
    run = play(PLAYBOOK, "-e", content(CUT), limit=LIMIT)
    assert run.code != 0
    for words in ("cut this node off", "by itself", "/etc/netplan/95-change.yaml", "/etc/netplan/01-mgmt.yaml"):
        assert words in " ".join(run.output.split()), run.output
    assert sh(NODE, FILES) == before
    assert "10.0.2.15/24" in sh(NODE, "ip -br -4 address show dev enP7s7")
    assert sh(NODE, LEFT) == ""
    assert not any(make_so(limit=LIMIT).changed.values())


def test_a_controller_that_is_killed_leaves_the_old_files(before: str) -> None:
    begin_and_kill()
    wait_for(lambda: sh(NODE, LEFT) == "", 180, "the change to go back")
    assert sh(NODE, FILES) == before


def test_a_reboot_in_the_middle_ends_with_the_old_files(before: str) -> None:
    begin_and_kill()
    wait_for(lambda: "95-change" in sh(NODE, FILES), 30, "the file to be written")
    boot = sh(NODE, "cat /proc/sys/kernel/random/boot_id")
    sh(NODE, "systemctl reboot --force", check=False)
    wait_for(lambda: sh(NODE, "cat /proc/sys/kernel/random/boot_id", check=False) not in ("", boot), 180, "reboot")
    assert sh(NODE, FILES) == before
    assert sh(NODE, LEFT) == ""
    assert "change" not in sh(NODE, "ls /run/systemd/network")


def test_the_vendor_s_file_is_refused_then_absorbed_then_given_back() -> None:
    assert play("playbooks/teardown.yml", limit=LIMIT).code == 0
    text = "network:\\n  version: 2\\n  ethernets:\\n" + "".join(
        f"    {name}:\\n      link-local: [ ipv4 ]\\n" for name in ("enp1s0f0np0", "enP2p1s0f0np0")
    )
    sh(NODE, f"printf '{text}' >/etc/netplan/40-cx7.yaml; chmod 640 /etc/netplan/40-cx7.yaml")
    bare = sh(NODE, FILES)
    try:
        refused = play("site.yml", "--tags", "fabric", limit=LIMIT)
        assert refused.code != 0
        said = " ".join(refused.output.split())
        for words in ("/etc/netplan/40-cx7.yaml", "ethernets.enp1s0f0np0", "dgx-p0f0", "netplan_vf_foreign_stanzas"):
            assert words in said, refused.output
        assert sh(NODE, FILES) == bare
        absorbed = play("site.yml", "--tags", "fabric", "-e", "netplan_vf_foreign_stanzas=absorb", limit=LIMIT)
        assert absorbed.code == 0, absorbed.output
        assert "40-cx7" not in sh(NODE, FILES)
        assert "169.254" not in sh(NODE, "ip -br -4 address")
        again = play("site.yml", "--tags", "fabric", limit=LIMIT)
        assert not any(again.changed.values()), again.output
        assert play("playbooks/teardown.yml", limit=LIMIT).code == 0
        assert sh(NODE, FILES) == bare
    finally:
        sh(NODE, "rm -f /etc/netplan/40-cx7.yaml; netplan apply")


def test_addresses_go_with_the_file() -> None:
    """netplan_vf alone, absent: the VFs stay, their addresses do not."""
    make_so(limit=LIMIT)
    run = play("tests/lab/playbooks/netplan_absent.yml", limit=LIMIT)
    assert run.code == 0, run.output
    wait_for(lambda: "10.100." not in sh(NODE, "ip -br -4 address"), 30, "the VFs' addresses to go")
    assert sh(NODE, "ls /var/lib/dgxspark/netplan 2>/dev/null; true") == ""
