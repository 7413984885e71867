"""Two cables between two Sparks, plugged in crosswise: named by verify, and well once they are as the plan says.

`tools/with_lab.py 2 pytest tests/lab/test_9_cables.py -m long`.
"""

from __future__ import annotations

import pathlib

import pytest
from fleet import SWITCH, Fleet
from harness import lab

pytestmark = pytest.mark.long

PLANNED = ("spark1:1=spark2:1", "spark1:2=spark2:2")
SWAPPED = ("spark1:1=spark2:2", "spark1:2=spark2:1")


def test_swapped_cables_are_named_and_well_once_they_are_as_planned(tmp_path: pathlib.Path) -> None:
    fleet = Fleet(tmp_path / "inventory", tmp_path / "report.json")
    fleet.write({"spark1": 1, "spark2": 2}, SWITCH | {"topology": "direct", "ports": [0, 1]})
    quick = ("-e", "dgxspark_verify_mode=quick")
    lab("cables", *SWAPPED)
    try:
        run = fleet.play("site", "", "--tags", "fabric")
        assert run.code == 0, run.output
        run, report = fleet.proof("verify", "", *quick)
        assert (run.code != 0, report["verdict"]) == (True, "failed"), run.output
        assert {cause["id"] for cause in report["causes"]} == {"arp.silent"}, report["causes"]
        for cause in report["causes"]:
            assert "the cables: one that leads to another port" in cause["remedy"]
        lab("cables", *PLANNED)
        run, report = fleet.proof("verify", "", *quick)
        assert (run.code, report["verdict"]) == (0, "passed"), run.output
        run = fleet.play("teardown")
        assert run.code == 0, run.output
    finally:
        lab("cables", "switch")
