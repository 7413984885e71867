"""The tests that benchmarks/bad_days.yml names for the faults of the fabric are there."""

from __future__ import annotations

import pathlib
import runpy

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_every_bad_day_is_shown_by_tests_that_are_there() -> None:
    absent = runpy.run_path(str(ROOT / "benchmarks" / "bad_days.py"))["absent"]
    days = yaml.safe_load((ROOT / "benchmarks" / "bad_days.yml").read_text("utf-8"))
    for day in days:
        assert day["tests"], day["day"]
        assert absent(day["tests"]) == [], day["day"]
    assert absent(["tests/unit/test_bad_days.py::test_that_there_is_not"])
