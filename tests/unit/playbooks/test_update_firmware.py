"""update.yml with firmware, with a stand-in for fwupdmgr on each Spark: shown, refused, installed, killed, resumed, worse.

Both Sparks are this machine, which is not restarted: Ansible refuses to restart a controller, so a turn ends there, as one that is killed
does. What a restart does to firmware, the test does.
"""

from __future__ import annotations

import json
import pathlib
import sys
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import update_firmware
from ansible_collections.dgxspark.cluster.tests.unit.owner import HERE, NO_ANSIBLE, ROOT, Owner, can_run

pytestmark = pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)
EC, GUID = "e" * 40, "b585990a-003e-5270-89d5-3705a17f9a43"
NAME = "Embedded Controller\u202e"
SPARKS = ("spark1", "spark2")
BAD = """\
entries:
  - id: ec-1-2-4
    component: device_firmware
    device: Embedded*
    versions: ">=1.2.4,<1.2.5"
    severity: error
    message: EC 1.2.4 turns the fans off.
    remedy: Use 1.2.3.
    source: [test]
    verified: reported
"""


class Flashed(Owner):
    """Two Sparks, each with a device and a state of its own; FWUPD_STATE reaches the stand-in with the interpreter."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        for name in ("dpkg-query", "apt-cache"):
            self.tool(name, "")
        (self.tools / "fwupdmgr").symlink_to(ROOT / "tests/stand_ins/fwupdmgr")
        for spark in SPARKS:
            python = self.folder / f"python-{spark}"
            python.write_text(
                f'#!/bin/sh\nFWUPD_STATE={self.folder}/fwupd SPARK={spark} exec {sys.executable} "$@"\n', "utf-8"
            )
            python.chmod(0o755)
            device = {
                "id": EC,
                "name": NAME,
                "guids": [GUID],
                "version": "1.2.2",
                "offers": ["1.2.2", "1.2.3", "1.2.4"],
            }
            self.write(spark, {"devices": [device]})

    def place(self, spark: str) -> pathlib.Path:
        return self.folder / f"fwupd-{spark}"

    def write(self, spark: str, state: t.Any) -> None:
        self.place(spark).write_text(json.dumps(state), "utf-8")

    def change(self, spark: str, **more: t.Any) -> None:
        state = json.loads(self.place(spark).read_text("utf-8"))
        state["devices"][0].update({key: value for key, value in more.items() if key != "refuse"})
        self.write(spark, state | {key: more[key] for key in more if key == "refuse"})

    def installed(self, spark: str) -> list[str]:
        """What fwupd was asked to install."""
        log = self.place(spark).with_name(f"fwupd-{spark}.asked")
        return [
            line for line in (log.read_text("utf-8").splitlines() if log.exists() else []) if line.startswith("install")
        ]

    def restart(self, spark: str, version: str) -> None:
        """The Spark restarts, and runs this version; that was long ago, and so was the note of it."""
        state = json.loads(self.place(spark).read_text("utf-8"))
        past = state["devices"][0]["past"] | {"Modified": 5}
        self.change(spark, version=version, past=past)

    def update(self, *arguments: str, **variables: t.Any) -> tuple[int, str]:
        given = {
            "dgxspark_fabric": {"hardware": "spark", "topology": "switch"},
            "spark_update_firmware": {"*": "newest"},
            "spark_update_only_stated": True,
            "spark_update_proof": [],
            **variables,
        }
        hosts = {
            spark: {**HERE, "ansible_python_interpreter": str(self.folder / f"python-{spark}")} for spark in SPARKS
        }
        inventory = {"all": {"children": {"dgx": {"hosts": hosts, "vars": given}}}}
        (self.folder / "inventory.yml").write_text(yaml.safe_dump(inventory), "utf-8")
        done = self.play(ROOT / "playbooks" / "update.yml", *arguments)
        assert "Traceback" not in done.stdout + done.stderr and "\u202e" not in done.stdout
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    def note(self, spark: str) -> pathlib.Path:
        return self.folder / "update" / f"node-{spark}.json"


def test_check_mode_shows_what_each_device_gets_and_touches_nothing(tmp_path: pathlib.Path) -> None:
    owner = Flashed(tmp_path)
    code, output = owner.update("--check", spark_update_canary="spark2", spark_update_refresh=False)
    assert code == 0, output
    assert update_firmware.ONE_WAY in output
    assert "first, alone: spark2 gets firmware of Embedded Controller 1.2.2 -> 1.2.4 and is restarted" in output
    assert "then, if spark2 is no worse: spark1 gets firmware" in output
    assert not any(map(owner.installed, SPARKS)) and not owner.note("spark2").parent.exists()


@pytest.mark.more
def test_a_run_stops_at_the_first_and_goes_on_where_it_was(tmp_path: pathlib.Path) -> None:
    owner = Flashed(tmp_path)
    stated = {"spark_update_firmware": {GUID: "1.2.3"}, "spark_update_refresh": False}
    code, output = owner.update(**stated)
    # Installed, and cut off where it would restart: the other Spark is as it was, and the way back is printed.
    assert code == 2 and "spark1 is worse, or its update failed" in output, output
    assert f"fwupdmgr install {EC} 1.2.2 --allow-older" in output
    assert owner.installed("spark1") == [f"install {EC} 1.2.3"] and not owner.installed("spark2")
    noted = json.loads(owner.note("spark1").read_text("utf-8"))
    assert noted["parts"] == {"firmware": {GUID: "1.2.2"}} and not noted.get("proven")
    # It awaits its restart: nothing is installed twice.
    code, output = owner.update(**stated)
    assert (
        "first, alone: spark1 gets firmware of Embedded Controller 1.2.2 -> 1.2.3, which awaits the restart" in output
    )
    assert code == 2 and len(owner.installed("spark1")) == 1 and not owner.installed("spark2")
    # It was restarted: it is proven, and the other one has its turn.
    owner.restart("spark1", "1.2.3")
    code, output = owner.update(**stated)
    assert "first, alone: spark1 is proven (an earlier run began it)" in output, output
    assert json.loads(owner.note("spark1").read_text("utf-8"))["proven"] is True
    assert owner.installed("spark2") == [f"install {EC} 1.2.3"]
    owner.restart("spark2", "1.2.3")
    assert owner.update(**stated)[0] == 0
    code, output = owner.update(**stated)
    assert code == 0 and "Nothing is updated" in output and output.count("changed=0") == 2, output


@pytest.mark.more
def test_firmware_that_does_not_run_after_its_restart_is_worse_and_the_rest_is_untouched(
    tmp_path: pathlib.Path,
) -> None:
    owner = Flashed(tmp_path)
    owner.note("spark1").parent.mkdir()
    begun = {
        "wanted": {f"firmware {GUID}": "1.2.4"},
        "before": {},
        "booted_s": 1000.0,
        "parts": {"firmware": {GUID: "1.2.2"}},
    }
    owner.note("spark1").write_text(json.dumps(begun), "utf-8")
    # It runs the new version when the run is planned, and fell back to the old one by the time it is looked at again.
    asked = owner.place("spark1").with_name("fwupd-spark1.asked")
    owner.change("spark1", version="1.2.4", then={"after": 3, "version": "1.2.2"})
    code, output = owner.update(spark_update_refresh=False)
    assert code == 2 and "the firmware of Embedded Controller is 1.2.2, not 1.2.4" in output, output
    assert "1.2.2 --allow-older" in output and not owner.installed("spark2") and asked.exists()


@pytest.mark.more
def test_a_known_bad_version_is_passed_over_and_refused_where_it_is_stated(tmp_path: pathlib.Path) -> None:
    owner = Flashed(tmp_path)
    place = tmp_path / "dgxspark" / "versions"
    place.mkdir(parents=True)
    (place / "mine.yml").write_text(BAD, "utf-8")
    code, output = owner.update("--check", spark_update_refresh=False)
    assert (
        code == 0 and "1.2.4 is passed over: EC 1.2.4 turns the fans off." in output and "1.2.2 -> 1.2.3" in output
    ), output
    code, output = owner.update(spark_update_firmware={"Embedded*": "1.2.4"})
    assert code == 2 and "Nothing was touched" in output and "Use 1.2.3." in output
    assert not any(map(owner.installed, SPARKS)) and not owner.note("spark1").parent.exists()


@pytest.mark.more
def test_what_fwupd_refuses_ends_the_turn_with_its_reason(tmp_path: pathlib.Path) -> None:
    owner = Flashed(tmp_path)
    owner.change("spark1", refuse="failed to write-firmware: \x1b[31mdevice was not in supported mode")
    code, output = owner.update(spark_update_refresh=False)
    assert code == 2 and "failed to write-firmware: [31mdevice was not in supported mode" in output, output
    assert "\x1b" not in output and not owner.installed("spark2")


@pytest.mark.more
def test_without_fwupd_nothing_is_touched(tmp_path: pathlib.Path) -> None:
    owner = Flashed(tmp_path)
    (owner.tools / "fwupdmgr").unlink()
    code, output = owner.update(spark_update_refresh=False)
    assert code == 2 and "Nothing was touched" in output and "apt-get install fwupd" in output, output
