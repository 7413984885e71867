"""The guide on the matrix is taken literally: its matrix is planned, and its commands are run as printed.

The first section's commands are run by tests/api/test_matrix.py, against a cluster.
"""

from __future__ import annotations

import dataclasses
import pathlib
import shlex
import typing as t

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import cases
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.cases import Case
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.driver import Step
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.serving.plan import launch_plan
from ansible_collections.dgxspark.cluster.tests.unit import guide, matrix_driven
from ansible_collections.dgxspark.cluster.tests.unit.owner import NO_ANSIBLE, Owner, can_run

Plain = dict[str, t.Any]
HOSTS = {"hosts": ["spark1", "spark2", "spark3", "spark4"]}


class Slower(matrix_driven.Scripted):
    """The same cases on another driver: everything takes a quarter longer, and one does not start."""

    def bench(self, case: Case, folder: pathlib.Path, run: int) -> Step:
        made = super().bench(case, folder, run)
        for level in made.data["report"]["workloads"][0]["levels"]:
            for name in ("peak_tokens_per_s", "wall_tokens_per_s"):
                level["figures"][name] = (level["figures"][name] or 0) * 0.8 or None
        return made

    def collect(self, case: Case, folder: pathlib.Path) -> Step:
        made = super().collect(case, folder)
        return Step(True, data={**made.data, "platform": {**made.data["platform"], "driver": "595.10"}})


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Owner:
    """An owner who has measured the same cases with two drivers, in the folders that the guide names."""
    folder = tmp_path_factory.mktemp("owner")
    whole = matrix_driven.matrix()
    named = {name: choices for name, _labels, choices in cases.combinations(whole)[: len(matrix_driven.SCRIPTS)]}
    made = dataclasses.replace(whole, axes={}, cases=named)
    for name, steps in (("driver-580", matrix_driven.Scripted), ("driver-595", Slower)):
        place = folder / "matrix" / name
        place.mkdir(parents=True)
        matrix_driven.run(place, steps(place), made)
    return Owner(folder)


def run(owner: Owner, command: str) -> tuple[int, str]:
    """Run a command as it is printed."""
    done = owner.typed(*shlex.split(command)[1:])
    said = " ".join((done.stdout + done.stderr).split())
    assert "Traceback" not in said, said
    return done.returncode, said


def test_the_guides_matrix_is_planned() -> None:
    (entry,) = [yaml.safe_load(block) for block in guide.blocks("guide_matrix", "yaml")]
    made = cases.matrix_of(entry)
    found = cases.planned(made, lambda overrides: launch_plan(made.profile, HOSTS, overrides))
    assert {name for case in found for name in (case.name, *case.also)} == {
        "triton/graphs",
        "triton/eager",
        "flashinfer/graphs",
        "deep",
    }


@pytest.mark.more
@pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)
def test_two_logs_are_laid_side_by_side(logs: Owner) -> None:
    (command,) = [each for each in guide.commands("guide_matrix") if ".compare" in each]
    code, said = run(logs, command)
    assert code == 0, said
    assert "driver: 580.142 -> 595.10" in said
    assert "SLOWER" in said
    assert "-20.0 %" in said
    assert "FASTER" not in said
    assert "changed=0" in said
    code, said = run(logs, f"{command} -e compare_fail=true")
    assert code != 0
    assert "matrix/driver-595 is slower than matrix/driver-580" in said
    # A missing log is reported.
    code, said = run(logs, "ansible-playbook dgxspark.cluster.compare -e before=matrix/driver-580 -e after=matrix/none")
    assert code != 0
    assert "there is no such folder or journal, and no matrix of that id" in said
