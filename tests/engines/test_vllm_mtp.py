"""Speculation with a trained prediction head, in a real vLLM on the CPU: the plan's numbers are the engine's, and drafts are accepted."""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import time
import typing as t
import urllib.request

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import known, metrics, report
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.run import run
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.wanted import BenchRequest
from ansible_collections.dgxspark.cluster.tests.engines import planned, served
from ansible_collections.dgxspark.cluster.tests.engines.answers import ANSWERS
from ansible_collections.dgxspark.cluster.tests.engines.kubelet import Pod

pytestmark = pytest.mark.long
PATIENCE_S = 1200  # for a busy machine
PROFILE = "tiny-mtp-cpu"
# The engine's own word. Its page of settings needs pip, which this environment has not.
DRAFTS = re.compile(
    r"speculative_config=SpeculativeConfig\(method='(?P<method>\w+)'.*?num_spec_tokens=(?P<steps>\d+)\)"
)
COUNTED = ("drafts", "draft_tokens", "accepted_tokens")
FIRST_DRAFT = 0.5  # what mtp_model.py demands of its head


@pytest.fixture(scope="module")
def model(engine: pathlib.Path) -> pathlib.Path:
    folder = served.with_head(engine)
    print(f"\nmodel: {(folder / 'made.txt').read_text(encoding='utf-8').splitlines()[-1]}")
    return folder


@contextlib.contextmanager
def up(
    steps: int, overlays: list[str], model: pathlib.Path, engine: pathlib.Path, root: pathlib.Path
) -> t.Iterator[tuple[planned.Plain, Pod, str]]:
    """Serve what is planned with so many draft steps; 0: without speculation."""
    asked = {"speculative_algorithm": "NEXTN", "speculative_num_steps": steps} if steps else {}
    made = planned.plan(overlays, PROFILE, asked)
    assert made["verdict"] != "blocked", made["findings"]
    print(f"\nplanned: {' '.join(made['ranks'][0]['argv'])}")
    pod = planned.pod(made, overlays, model, root / f"steps-{steps}", engine)
    pod.start()
    try:
        pod.wait("ready", PATIENCE_S)
        assert pod.restarts == 0
        port = next(each["containerPort"] for each in pod.container["ports"] if each["name"] == "http")
        yield made, pod, f"http://127.0.0.1:{port}"
    finally:
        pod.stop()


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def said(url: str) -> dict[str, str]:
    """Return what it answers to all that it was taught."""
    found = {}
    for ask in ANSWERS:
        body = {
            "model": "dgxspark/tiny-mtp",
            "messages": [{"role": "user", "content": ask}],
            "max_tokens": 256,
            "temperature": 0,
        }
        request = urllib.request.Request(
            f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            found[ask] = str(json.load(answer)["choices"][0]["message"]["content"])
    return found


def logged(pod: Pod, drafted: float, entries: t.Mapping[str, t.Any]) -> metrics.Acceptance:
    """Return the log's acceptance, once it has told all that was drafted: it does so every ten seconds."""
    until = time.monotonic() + 120
    while True:
        text = pod.log.read_text(encoding="utf-8", errors="replace")
        told = sum(int(found["drafted"]) for found in re.finditer(entries["vllm"]["log"][0]["line"], text))
        if told >= drafted:
            assert told == drafted
            found = metrics.acceptance_of_log(text, entries)
            assert found
            return found
        assert time.monotonic() < until, f"{told} of {drafted} drafted tokens are in the log: {pod.tail()}"
        time.sleep(1)


def test_without_speculation_it_answers_as_it_was_taught(
    overlays: list[str], model: pathlib.Path, engine: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with up(0, overlays, model, engine, tmp_path) as (_made, _pod, url):
        assert said(url) == ANSWERS


@pytest.mark.parametrize("steps", [1, 3])
def test_drafts_of_a_trained_head_are_accepted(
    steps: int, overlays: list[str], model: pathlib.Path, engine: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """And change no answer: those are all that it was taught, as without speculation."""
    entries = knowledge.load("metrics")
    with up(steps, overlays, model, engine, tmp_path) as (made, pod, url):
        assert said(url) == ANSWERS
        after = page(f"{url}/metrics")
        drafts, drafted, accepted = (
            sum(metrics.values_of(after)[f"vllm:spec_decode_num_{name}_total"]) for name in COUNTED
        )
        by_log = logged(pod, drafted, entries)
        wanted = BenchRequest(f"{url}/v1", workloads=("tiny-counting",), levels=(1, 4), rounds=1)
        benched = run(wanted, known.load([str(served.WORKLOADS)]), lambda _text: None)

    plan = made["speculation"]
    assert (plan["algorithm"], plan["steps"], plan["tokens"], plan["forced"]) == ("mtp", steps, steps + 1, False)
    own = DRAFTS.search(pod.log.read_text(encoding="utf-8", errors="replace"))
    assert own
    assert [own["method"], int(own["steps"])] == [
        made["resolved"][f"speculative_{name}"]["value"] for name in ("algorithm", "num_steps")
    ]
    assert drafted == drafts * (plan["tokens"] - 1)

    by_metrics = metrics.acceptance(
        [["", after]], entries["vllm"]
    )  # from the start on, as the log: the supervisor asked, too
    assert by_metrics
    assert by_metrics.length == 1 + accepted / drafts
    assert (by_log.length, by_log.rate) == pytest.approx((by_metrics.length, by_metrics.rate), abs=0.01)
    print(
        f"\n{steps} steps: {drafts:.0f} drafts, {accepted:.0f} of {drafted:.0f} tokens accepted; {by_metrics}; {by_log}"
    )
    assert accepted / drafts >= FIRST_DRAFT

    print(json.dumps(benched.get("acceptance")))
    assert report.verdict(benched) == "good"
    assert 1 + FIRST_DRAFT <= benched["acceptance"]["length"] <= steps + 1
