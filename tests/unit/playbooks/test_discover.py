"""discover.yml as its guide runs it: two stand-ins of Sparks, each with a network namespace of its own and a made-up /sys.

Their functions are veths on a bridge, as two cabled ports with both their functions would be, so the calls are real frames.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.tests.support.two_sparks import HOSTS, Site
from ansible_collections.dgxspark.cluster.tests.unit import guide
from ansible_collections.dgxspark.cluster.tests.unit.namespaces import needed
from ansible_collections.dgxspark.cluster.tests.unit.owner import DOWN, NO_ANSIBLE, can_run

pytestmark = [needed(), pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)]

CHECK, DISCOVER, PLAN = (shlex.split(command)[1:] for command in guide.commands("guide_discover"))
STATE = "ip -4 -br address; ip -o link | cut -d: -f2-; ip route; find /etc /run /usr/local/bin -newer /etc/hostname -type f | sort"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("discover"))
    yield made
    made.lan.close()


def changed(done: subprocess.CompletedProcess[str]) -> int:
    return sum(map(int, re.findall(r"changed=(\d+)", done.stdout)))


@pytest.mark.more
def test_the_guide_s_commands_make_a_folder_that_plan_takes(site: Site) -> None:
    before = [host.sh(STATE) for host in site.lan.hosts.values()]
    foretold = site.type(CHECK)
    assert foretold.returncode == 0, foretold.stdout + foretold.stderr
    assert not site.folder.exists()
    assert "2 Sparks: direct of 1 cable." in foretold.stdout and "would be written to" in foretold.stdout

    made = site.type(DISCOVER)
    assert made.returncode == 0, made.stdout + made.stderr
    assert changed(made) == 1
    written = site.files()
    assert set(written) == {"inventory/hosts.yml", "inventory/group_vars/dgx.yml", "discovered.html"}
    fabric = yaml.safe_load(written["inventory/group_vars/dgx.yml"])["dgxspark_fabric"]
    assert fabric["cables"] == [["spark1:0", "spark2:0"]]
    assert fabric["address_pool"] == "10.101.0.0/16", "Docker has a part of 10.100.0.0/16"
    assert "192.0.2.0/24" in [*fabric["management_networks"], *fabric["reserved_networks"].values()]

    again = site.type(DISCOVER)
    assert (again.returncode, changed(again), site.files()) == (0, 0, written), again.stdout
    assert [host.sh(STATE) for host in site.lan.hosts.values()] == before

    planned = site.type(PLAN)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert "10.101.0.1" in planned.stdout and "enP2p1s0f0np0" in planned.stdout


@pytest.mark.long
def test_a_folder_with_other_content_is_left_as_it_is_unless_told(site: Site) -> None:
    if not site.folder.exists():
        site.type(DISCOVER)
    group = site.folder / "inventory/group_vars/dgx.yml"
    ours = group.read_text()
    group.write_text(ours.replace("vf_count: 4", "vf_count: 2"))
    kept = site.type(DISCOVER)
    assert kept.returncode not in (0, 250)
    assert "-  vf_count: 2" in kept.stdout and "+  vf_count: 4" in kept.stdout
    assert "dgxspark_discover_overwrite=true" in kept.stdout + kept.stderr
    assert "vf_count: 2" in group.read_text()
    told = site.type(DISCOVER, "-e", "dgxspark_discover_overwrite=true")
    assert (told.returncode, changed(told), group.read_text()) == (0, 1, ours), told.stdout


@pytest.mark.long
def test_a_host_that_is_down_is_named_and_the_others_are_described(site: Site) -> None:
    there = {"ansible_connection": "local", "ansible_become": False}
    hosts: dict[str, t.Any] = {
        address: {**there, "ansible_python_interpreter": str(site.lan.hosts[address].python)} for address in HOSTS
    }
    hosts["attic"] = {**DOWN, "ansible_become": False}
    (site.owner.folder / "three.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    arguments = ("-i", "three.yml", "-e", "dgxspark_discover_to=three", "-e", "dgxspark_discover_window=6")
    done = site.owner.typed("dgxspark.cluster.discover", *arguments)
    assert done.returncode not in (0, 250), done.stdout
    assert re.search(r"ERROR: spark3 \(attic\): it could not be read: .*Connection refused", done.stdout), done.stdout
    assert "spark1:0 - spark2:0" in done.stdout and "No inventory was written." in done.stdout
    assert [p.name for p in (site.owner.folder / "three").iterdir()] == ["discovered.html"]


@pytest.mark.more
def test_hosts_of_which_none_answers_and_a_python_that_does_not_start_have_their_remedy(site: Site) -> None:
    shim = site.owner.folder / "shim"
    shim.write_text("#!/bin/sh\necho 'pyenv: python3.13: command not found' >&2; exit 127\n")
    shim.chmod(0o755)
    hosts: dict[str, t.Any] = {
        "attic": {**DOWN, "ansible_become": False},
        "shed": {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": str(shim)},
    }
    (site.owner.folder / "off.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    done = site.owner.typed("dgxspark.cluster.discover", "-i", "off.yml", "-e", "dgxspark_discover_to=off")
    assert done.returncode not in (0, 250), done.stdout
    assert re.search(r"ERROR: spark1 \(attic\): it could not be read: .*Connection refused", done.stdout), done.stdout
    assert f"ERROR: spark2 (shed): it could not be read: The node's Python {shim} does not start" in done.stdout
    assert "ansible_python_interpreter: /usr/bin/python3" in done.stdout


@pytest.mark.more
def test_too_few_forks_and_no_folder_are_refused_before_anything_is_read(site: Site) -> None:
    few = site.type(DISCOVER, "--forks", "1")
    assert few.returncode != 0 and "--forks 2" in few.stdout
    nowhere = site.type(DISCOVER[:-2])
    assert nowhere.returncode != 0 and "dgxspark_discover_to=my-cluster" in nowhere.stdout
