"""Two ranks of a real vLLM on the CPU, by the plan's own `--nnodes 2 --node-rank … --headless`: they find each other, serve, and die together.

Each is the rendered pod in namespaces of its own, as on GPUs (drive.py). Needs root. What a CPU has not: NCCL, devices, graphs.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import re
import signal
import time
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import read_model_files
from ansible_collections.dgxspark.cluster.tests.engines.answers import SUMS
from ansible_collections.dgxspark.cluster.tests.engines.boxed import until
from ansible_collections.dgxspark.cluster.tests.engines.groups import Case, Group, planned
from ansible_collections.dgxspark.cluster.tests.engines.planned import free_gib
from ansible_collections.dgxspark.cluster.tests.engines.taught import said

pytestmark = [pytest.mark.long, pytest.mark.skipif(os.geteuid() != 0, reason="not run: namespaces need root")]
PATIENCE_S = 1200  # for a busy machine
HANG_S = 60
CASE = Case(
    "two-cpu-ranks",
    "tiny",
    {
        "max_model_len": 2048, "max_num_seqs": 8, "disable_cuda_graph": True, "dtype": "bfloat16", "gpu_memory_utilization": 0.1,
        "distributed_executor_backend": "mp",
    },
    environment={"OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"},
    parallel={"nodes": 2, "tp": 2},
    engine=("vllm", "0.32.0+cpu"),
    kubernetes={"hang_after_s": HANG_S},
)  # fmt: skip


@pytest.fixture(scope="module")
def group(
    engine: pathlib.Path, model: pathlib.Path, overlays: list[str], tmp_path_factory: pytest.TempPathFactory
) -> t.Iterator[Group]:
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "models").mkdir()
    (folder / "models" / CASE.model).symlink_to(model)
    plan = planned(CASE, read_model_files(str(model)), overlays, free_gib=round(free_gib(), 1))
    print(json.dumps([rank["argv"] for rank in plan["ranks"]]))
    more = {"PATH": f"{engine}:{os.environ['PATH']}"}
    made = Group(CASE, folder / "models", folder, folder / "node", ["", ""], more, plan)
    made.start()
    yield made
    made.close()


def right(group: Group) -> list[str]:
    """Return the questions that it answers as the model was taught."""
    asked = ("What is 7 + 8?", "What is 9 + 9?", "What is 0 + 0?")
    return [ask for ask in asked if said(group, ask, PATIENCE_S)[0] == SUMS[ask]]


def test_they_find_each_other_and_serve(group: Group) -> None:
    began = time.monotonic()
    state = group.wait(PATIENCE_S)
    print(f"\nready after {time.monotonic() - began:.0f} s")
    assert state == "ready", f"{state}\n" + "\n".join(pod.tail() for pod in group.pods)
    first, second = (group.log(rank) for rank in (0, 1))
    assert len(right(group)) == 3
    # The second has no API of its own, and both are of one group.
    assert "Application startup complete" in first and "Application startup complete" not in second
    assert re.search(r"world_size=2 rank=1\b|rank 1 in world size 2", second), second[-2000:]


def test_one_that_dies_takes_the_other_with_it_and_both_answer_again(group: Group) -> None:
    assert group.wait(PATIENCE_S) == "ready"
    workers = [pid for pid, title in group.pods[1].processes().items() if title.startswith("VLLM::Worker")]
    assert workers, group.pods[1].processes()
    os.kill(workers[-1], signal.SIGKILL)
    at = time.monotonic()
    ended = [until(functools.partial(pod.ended, at), 120) for pod in group.pods]
    assert all(ended), [pod.tail() for pod in group.pods]
    print(f"\nended after {[round(when - at, 1) for when, _how in ended]} s: {[how for _when, how in ended]}")
    assert group.wait(PATIENCE_S, since=time.monotonic()) == "ready"
    print(f"ready again after {time.monotonic() - at:.0f} s")
    assert len(right(group)) == 3


def test_one_that_hangs_is_noticed_though_the_api_says_that_all_is_well(group: Group) -> None:
    """On GPUs nothing ended in the 240 s that were waited: /health said 200, and vLLM itself waits for 300 s."""
    assert group.wait(PATIENCE_S, since=time.monotonic()) == "ready"
    workers = [pid for pid, title in group.pods[1].processes().items() if title.startswith("VLLM::Worker")]
    os.kill(workers[-1], signal.SIGSTOP)
    at = time.monotonic()
    try:
        assert group.ask("/health", timeout=10)[0] == 200
        ended = [until(functools.partial(pod.ended, at), 2.5 * HANG_S) for pod in group.pods]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(workers[-1], signal.SIGCONT)
    assert all(ended), [pod.tail() for pod in group.pods]
    print(f"\nended after {[round(when - at, 1) for when, _how in ended]} s: {[how for _when, how in ended]}")
    assert ended[0][1] == "ended with 36", group.head.tail()
    assert group.wait(PATIENCE_S, since=time.monotonic()) == "ready"
    assert len(right(group)) == 3
