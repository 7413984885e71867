"""What is measured around an update: old reports do not count, a model may take its time, and the first measurement is kept."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import update_proof
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.update import Proof

BENCH = {"workloads": [{"name": "chat", "levels": [
    {"n": 1, "verdict": "good", "figures": {"wall_tokens_per_s": 40.5}},
    {"n": 8, "verdict": "garbage", "figures": {"wall_tokens_per_s": 300.0}},
]}]}  # fmt: skip


class Played:
    """The playbooks; bench writes a report from its third run on."""

    def __init__(self, from_run: int = 1) -> None:
        self.from_run, self.ran = from_run, t.cast(list[str], [])

    def __call__(self, name: str, report: pathlib.Path) -> str:
        assert not report.exists()
        self.ran.append(name)
        if name == "verify":
            report.write_text(json.dumps({"verdict": "passed", "headline": "PASSED"}), "utf-8")
        elif self.ran.count("bench") >= self.from_run:
            report.write_text(json.dumps(BENCH), "utf-8")
        return "There is no model to measure"


def test_both_are_measured_and_only_good_answers_count(tmp_path: pathlib.Path) -> None:
    proof = update_proof.prove(Played(), tmp_path, "first", ["verify", "bench"])
    assert proof == Proof("passed", {"chat n=1": 40.5, "chat n=8": 0.0})


def test_a_model_may_take_its_time_and_an_old_report_does_not_count(tmp_path: pathlib.Path) -> None:
    (tmp_path / "spark1-bench.json").write_text(json.dumps(BENCH), "utf-8")
    played = Played(from_run=3)
    proof = update_proof.prove(played, tmp_path, "spark1", ["bench"], wait_s=30, pause_s=0)
    assert proof.tokens and played.ran == ["bench"] * 3
    nothing = update_proof.prove(Played(from_run=9), tmp_path, "spark1", ["bench"], pause_s=0)
    assert nothing.tokens is None and "no model to measure" in nothing.why[0]


def test_a_report_that_is_none_and_a_step_that_is_none_are_errors(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CollectionError, match="spark_update_proof"):
        update_proof.prove(Played(), tmp_path, "first", ["reboot"])

    def broken(_name: str, report: pathlib.Path) -> str:
        report.write_text("{", "utf-8")
        return ""

    with pytest.raises(CollectionError, match="cannot be kept or read"):
        update_proof.prove(broken, tmp_path, "first", ["verify"])


def test_the_first_measurement_is_kept_for_this_update_only(tmp_path: pathlib.Path) -> None:
    place, proof = tmp_path / "first.json", Proof("passed", {"chat n=1": 40.5})
    assert update_proof.kept(place, {"a": "1"}) is None
    update_proof.keep(place, {"a": "1"}, proof)
    assert update_proof.kept(place, {"a": "1"}) == proof and update_proof.kept(place, {"a": "2"}) is None
    place.write_text("[]", "utf-8")
    with pytest.raises(CollectionError, match="Remove it"):
        update_proof.kept(place, {"a": "1"})
