"""update.yml as it is run, with stand-ins for dpkg and apt-cache: what is held, noted, refused; a second run; a resumed one."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.tests.unit.owner import HERE, NO_ANSIBLE, ROOT, Owner, can_run

pytestmark = pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)
OLD, NEW, KHO = "6.17.0-1021.21", "6.17.0-1032.32", "7.0.0-1019.19"
META = "linux-image-nvidia"
# Keeps one node's selections: both hosts are this machine.
DPKG = """#!/usr/bin/python3
import pathlib, sys
state = pathlib.Path({state!r})
if sys.argv[1:2] == ["--get-selections"]:
    print("{name}\\t" + (state.read_text().strip() if state.exists() else "install"))
elif sys.argv[1:2] == ["--set-selections"]:
    state.write_text(sys.stdin.read().split()[1])
"""
QUERY = """#!/bin/sh
echo "{name}|{version}|$(cat {state} 2>/dev/null || echo install)|installed"
"""


class Updated(Owner):
    """Two Sparks with one kernel package."""

    def __init__(self, folder: pathlib.Path, version: str) -> None:
        super().__init__(folder)
        self.state = folder / "selection"
        for name, text in (("dpkg", DPKG), ("dpkg-query", QUERY)):
            (self.tools / name).write_text(text.format(state=str(self.state), name=META, version=version), "utf-8")
            (self.tools / name).chmod(0o755)
        # This machine's own GRUB is left alone.
        (self.tools / "grub-probe").write_text("#!/bin/sh\nexit 1\n", "utf-8")
        (self.tools / "grub-probe").chmod(0o755)
        self.tool("apt-cache", "".join(f" {META} | {each} | http://x y\n" for each in (KHO, NEW, OLD)))

    def update(self, *arguments: str, **variables: t.Any) -> tuple[int, str]:
        hosts = {"spark1": HERE, "spark2": HERE}
        given = {
            "dgxspark_fabric": {"hardware": "spark", "topology": "switch"},
            "spark_update_refresh": False,
            "spark_update_proof": [],
            **variables,
        }
        inventory = {"all": {"children": {"dgx": {"hosts": hosts, "vars": given}}}}
        (self.folder / "inventory.yml").write_text(yaml.safe_dump(inventory), "utf-8")
        done = self.play(ROOT / "playbooks" / "update.yml", *arguments)
        assert "Traceback" not in done.stdout + done.stderr
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    def note(self, host: str) -> pathlib.Path:
        return self.folder / "update" / f"node-{host}.json"


def test_a_killed_run_is_resumed_and_a_second_one_changes_nothing(tmp_path: pathlib.Path) -> None:
    owner = Updated(tmp_path, NEW)
    owner.note("spark2").parent.mkdir()
    # It had installed the package and restarted the node, long ago.
    begun = {"wanted": {META: NEW}, "before": {META: OLD}, "kernel": "6.17.0-1021-nvidia", "booted_s": 1000.0}
    owner.note("spark2").write_text(json.dumps(begun), "utf-8")
    code, output = owner.update(spark_update_packages={META: "newest"})
    assert code == 0, output
    assert "first, alone: spark2 is proven (an earlier run began it)" in output
    assert f"{META} {KHO} is passed over" in output
    assert owner.state.read_text() == "hold"
    noted = json.loads(owner.note("spark2").read_text("utf-8"))
    assert noted["proven"] is True and noted["before"] == {META: OLD} and noted["wanted"] == {META: NEW}
    code, output = owner.update(spark_update_packages={META: "newest"})
    assert code == 0 and "Nothing is updated" in output, output
    assert output.count("changed=0") == 2, output


def test_a_known_bad_version_is_refused_before_anything_is_touched(tmp_path: pathlib.Path) -> None:
    owner = Updated(tmp_path, OLD)
    code, output = owner.update(spark_update_packages={META: KHO})
    assert code == 2 and "Nothing was touched" in output and "Kexec HandOver" in output
    assert not owner.state.exists() and not owner.note("spark1").parent.exists()


@pytest.mark.more
def test_check_mode_shows_the_turns_and_touches_nothing(tmp_path: pathlib.Path) -> None:
    owner = Updated(tmp_path, OLD)
    code, output = owner.update("--check", "--diff", spark_update_canary="spark2")
    assert code == 0, output
    assert f"first, alone: spark2 gets {META}={NEW} and is restarted" in output
    assert "then, if spark2 is no worse: spark1" in output
    assert not owner.state.exists() and not owner.note("spark1").parent.exists()


@pytest.mark.more
def test_a_node_that_is_worse_stops_the_run_with_the_way_back(tmp_path: pathlib.Path) -> None:
    """Here: what was begun as the newer version is not there after the turn, for it is held by something else."""
    owner = Updated(tmp_path, NEW)
    owner.note("spark1").parent.mkdir()
    for host in ("spark1", "spark2"):
        begun = {"wanted": {META: NEW}, "before": {META: OLD}, "kernel": "6.17.0-1021-nvidia", "booted_s": 1000.0}
        owner.note(host).write_text(json.dumps(begun), "utf-8")
    # Each node is listed once before the turns, and then it is an older version.
    query = owner.tools / "dpkg-query"
    query.write_text(
        query.read_text("utf-8")
        + f'echo x >>"$0.asked"; [ $(wc -l <"$0.asked") -le 2 ] || echo "{META}|{OLD}|hold|installed"\n',
        "utf-8",
    )
    code, output = owner.update(spark_update_packages={META: NEW})
    assert code == 2, output
    assert f"{META} is {OLD}, not {NEW}" in output and "grub-reboot" in output and f"{META}={OLD}" in output
    assert not json.loads(owner.note("spark2").read_text("utf-8")).get("proven")
