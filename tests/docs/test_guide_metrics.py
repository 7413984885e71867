"""The guide on metrics, followed in a mount namespace: predicted, installed, unchanged, run, and removed without a trace."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.tests.support.inventories import Inventory, shown
from ansible_collections.dgxspark.cluster.tests.support.playbooks import collections_path
from ansible_collections.dgxspark.cluster.tests.unit import guide
from ansible_collections.dgxspark.cluster.tests.unit.exposition import parse
from ansible_collections.dgxspark.cluster.tests.unit.namespaces import needed
from ansible_collections.dgxspark.cluster.tests.unit.owner import NO_ANSIBLE, PROGRAM, can_run

# STAND-IN for systemctl: a unit is enabled and runs, or is neither. It starts nothing.
SYSTEMCTL = """#!/bin/sh
verb=$1; for unit; do :; done
case $verb in
  show) if [ -e "$UNITS/$unit" ]; then printf 'UnitFileState=enabled\\nActiveState=active\\n'
        elif [ -e "/etc/systemd/system/$unit" ]; then printf 'UnitFileState=disabled\\nActiveState=inactive\\n'
        else printf 'UnitFileState=\\nActiveState=inactive\\n'; fi ;;
  enable) [ -e "/etc/systemd/system/$unit" ] && touch "$UNITS/$unit" ;;
  disable) rm -f "$UNITS/$unit" ;;
  start|restart|daemon-reload) ;;
  *) echo "stand-in: $verb is not known" >&2; exit 1 ;;
esac
"""
PLACES = {"etc": "/etc", "lib": "/usr/local/lib", "var": "/var/lib"}
INSIDE = 'for place in etc:/etc lib:/usr/local/lib var:/var/lib; do mount --bind "$0/${place%%:*}" "${place#*:}" || exit 99; done; exec "$@"'

pytestmark = [needed(), pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)]


class Spark:
    """This machine with folders of its own where the role writes, and the owner's inventory that names it spark1."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        subprocess.run(["cp", "-a", "/etc", folder / "etc"], check=True)
        for name in ("lib", "var", "units", "bin", "var/prometheus/node-exporter", "owner/reports"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "bin/systemctl").write_text(SYSTEMCTL)
        (folder / "bin/systemctl").chmod(0o755)
        inventory = Inventory()
        for facts in inventory.hosts.values():
            facts["dgxspark_roce"] = shown(110)
        inventory.hosts["spark1"] |= {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "ansible_become": False,
        }
        inventory.write(folder / "owner/inventory")

    def run(self, *words: t.Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", INSIDE, self.folder, *words],
            cwd=self.folder / "owner",
            capture_output=True,
            text=True,
            check=False,
            env={
                **os.environ,
                "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
                "UNITS": f"{self.folder}/units",
                "ANSIBLE_COLLECTIONS_PATH": collections_path(),
                "ANSIBLE_NOCOLOR": "1",
            },
        )

    def play(self, command: str, *more: str) -> tuple[str, int]:
        done = self.run(PROGRAM, *shlex.split(command)[1:], "-l", "spark1", *more)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, int(re.findall(r"spark1 +: .*changed=(\d+)", done.stdout)[0])

    def there(self) -> set[str]:
        return {
            str(path.relative_to(self.folder))
            for name in (*PLACES, "units")
            for path in (self.folder / name).rglob("*")
        }


COMMANDS = [
    each for each in guide.commands("guide_metrics") if ".top " not in each
]  # top lays nothing: tests/api/test_top.py


@pytest.mark.more
def test_the_commands_lay_the_metrics_on_a_node_and_take_them_away(tmp_path: pathlib.Path) -> None:
    foretell, lay, take = COMMANDS
    node = Spark(tmp_path)
    for stamp, verdict in (("20261123-120000", "failed"), ("20261124-120000", "passed")):
        report = {"verdict": verdict, "finished": "2026-11-24T12:00:09Z"}
        (tmp_path / f"owner/reports/fabric-{stamp}.json").write_text(json.dumps(report))
    before = node.there()
    output, changed = node.play(foretell)
    assert changed == 1 and node.there() == before and "dgxspark-metrics.timer" in output
    assert node.play(lay)[1] == 1
    assert node.play(lay)[1] == 0
    assert node.play(foretell)[1] == 0
    laid = {name for name in node.there() - before if not (tmp_path / name).is_dir()}
    assert {
        "etc/systemd/system/dgxspark-metrics.timer",
        "etc/dgxspark/metrics.json",
        "units/dgxspark-metrics.timer",
    } <= laid

    unit = (tmp_path / "etc/systemd/system/dgxspark-metrics.service").read_text()
    (command,) = re.findall(r"(?m)^ExecStart=(.+)$", unit)
    done = node.run(*command.split())
    assert "Traceback" not in done.stderr and done.returncode in (0, 1), done.stderr
    file = tmp_path / "var/prometheus/node-exporter/dgxspark.prom"
    samples = parse(file.read_text())
    assert samples["dgxspark_verify_passed", frozenset()] == 1
    assert samples["dgxspark_memory_floor_bytes", frozenset()] == 2**30
    problems = {dict(labels)["problem"] for name, labels in samples if name == "dgxspark_vf_problem"}
    assert problems == {"gid.function-missing"}, "this machine has no ConnectX-7"

    assert node.play(take, "--check")[1] == 1 and file.exists()
    assert node.play(take)[1] == 1
    assert node.there() == before
    assert node.play(take)[1] == 0


@pytest.mark.more
def test_without_a_node_exporter_it_is_refused_in_check_mode_too(tmp_path: pathlib.Path) -> None:
    node = Spark(tmp_path)
    (tmp_path / "var/prometheus/node-exporter").rmdir()
    done = node.run(PROGRAM, *shlex.split(COMMANDS[0])[1:], "-l", "spark1")
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "/var/lib/prometheus/node-exporter: the folder does not exist. Install the package" in said
