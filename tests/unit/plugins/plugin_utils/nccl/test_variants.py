"""Thousands of variants: never `ib` where something is lost or wrong, always where the change is harmless.

By default a few hundred of each; 10,000 of each are marked `long`. A failing seed is the whole test case.
"""

from __future__ import annotations

import random
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Reader
from ansible_collections.dgxspark.cluster.plugins.module_utils.signatures import Signature
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.verdict import Expected, judge
from ansible_collections.dgxspark.cluster.tests.unit import nccl_logs as made
from ansible_collections.dgxspark.cluster.tests.unit.nccl_read import SIGNATURES, TRUTH, real, shared
from ansible_collections.dgxspark.cluster.tests.unit.nccl_splice import spliced

SEEDS = [
    pytest.param(range(300), id="300"),
    pytest.param(range(300, 10_000), id="10000", marks=pytest.mark.long),
]
GOOD = {name: (made.build(job), job.ranks) for name, job in made.GOOD.items()}
# Real runs that failed or were cut are negative whatever is left of them, and so is every TCP run.
NEGATIVE = [
    *made.bad().values(),
    *(made.Bad(real(name), truth["verdict"], "") for name, truth in TRUTH.items()),
]


def verdict(logs: list[list[str]], world: int | None, signatures: t.Sequence[Signature] = ()) -> str:
    reader = Reader(signatures)
    for number, lines in enumerate(logs):
        reader.read(f"log {number}", lines)
    try:
        return str(judge(reader.finish(), signatures, Expected(world))["verdict"])
    except CollectionError:
        return "error"


@pytest.mark.parametrize("seeds", SEEDS)
def test_harmless_changes_keep_the_verdict(seeds: range) -> None:
    wrong = []
    for seed in seeds:
        chance = random.Random(seed)
        logs, world = GOOD[chance.choice(sorted(GOOD))]
        if verdict(made.harmless(logs, chance), world) != "ib":
            wrong.append(seed)
    assert wrong == []


@pytest.mark.parametrize("seeds", SEEDS)
def test_a_lost_rank_or_channel_is_never_ib(seeds: range) -> None:
    wrong = []
    for seed in seeds:
        chance = random.Random(seed)
        logs, world = GOOD[chance.choice(sorted(GOOD))]
        left = made.cut(logs, chance)
        if left and verdict(made.harmless(left, chance) if seed % 2 else left, world) == "ib":
            wrong.append(seed)
    assert wrong == []


@pytest.mark.parametrize("seeds", SEEDS)
def test_truncated_shuffled_and_spliced_negatives_are_never_ib(seeds: range) -> None:
    wrong = []
    for seed in seeds:
        chance = random.Random(seed)
        if verdict(made.negative_variant(NEGATIVE, chance), chance.choice((2, 2, 4))) == "ib":
            wrong.append(seed)
    assert wrong == []


@pytest.mark.parametrize("seeds", SEEDS)
def test_a_run_over_rdma_beside_a_piece_of_another_kind_is_never_ib(seeds: range) -> None:
    """Before or after it, cut anywhere, in processes of other or the same names: only where the piece says nothing."""
    good, others = list(GOOD.values()), [case.logs for case in NEGATIVE]
    wrong = []
    for seed in seeds:
        chance = random.Random(seed)
        splice, ranks = spliced(good, others, chance)
        world = chance.choice((None, ranks, ranks, ranks + 2, ranks * 2))
        if verdict(splice.logs, world, SIGNATURES) == "ib" and not splice.may_be_ib(
            lambda part, ranks=ranks: verdict(part, ranks, SIGNATURES)  # type: ignore[misc]
        ):
            wrong.append(seed)
    assert wrong == []


@pytest.mark.parametrize(
    "name", ["published/roce-1nic-nogdr-2.20.5.log", "published/ib-auto-roce-and-ib-nics-2.20.5.log"]
)
def test_published_runs_over_rdma_the_same_way(name: str) -> None:
    lines = shared(name)
    logs = [[line[3:] for line in lines if line.startswith(f"{rank}: ") and "NCCL INFO" in line] for rank in (0, 1)]
    for seed in range(50):
        chance = random.Random(seed)
        assert verdict(made.harmless(logs, chance), 2) == "ib", seed
        assert verdict(made.cut(logs, chance), 2) != "ib", seed
