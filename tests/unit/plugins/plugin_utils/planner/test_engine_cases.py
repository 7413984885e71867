"""The cases that are started on GPUs can be planned: no GPU's time goes on one that never gets a command."""

from __future__ import annotations

import collections

import pytest

from ansible_collections.dgxspark.cluster.tests.engines import drive, vllm_cases
from ansible_collections.dgxspark.cluster.tests.engines.cases import Trial
from ansible_collections.dgxspark.cluster.tests.engines.groups import planned
from ansible_collections.dgxspark.cluster.tests.engines.models import SMALL

CONFIGS = {**SMALL, "tiny": SMALL["small-llama"]}
OWN = [trial for trial in vllm_cases.CASES if trial.case.model in CONFIGS]


def test_each_case_has_a_name_of_its_own() -> None:
    assert [
        name for name, count in collections.Counter(each.case.id for each in drive.CASES).items() if count > 1
    ] == []
    assert all(each.case.id.startswith("vllm-") for each in vllm_cases.CASES)


@pytest.mark.parametrize("trial", OWN, ids=lambda trial: trial.case.id)
def test_each_case_of_vllm_has_a_command_for_each_rank(trial: Trial) -> None:
    case = trial.case
    made = planned(case, {"config": CONFIGS[case.model], "quant": None, "where": case.model})
    commands = [rank["argv"] for rank in made["ranks"]]
    assert [words[:3] for words in commands] == [["vllm", "serve", f"tests/{case.model}"]] * case.nodes
    assert ["--headless" in words for words in commands] == [rank > 0 for rank in range(case.nodes)]
