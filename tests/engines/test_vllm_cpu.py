"""A real engine behind our own plan, objects, start script and probes: it serves, is killed in mid-stream, and comes back."""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import re
import signal
import time
import typing as t
import urllib.request

import pytest

from ansible_collections.dgxspark.cluster.plugins.modules.serving_canary import ARGUMENTS
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.client import ChatRequest, Outcome, ask
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.guards import limits_of
from ansible_collections.dgxspark.cluster.tests.engines import planned
from ansible_collections.dgxspark.cluster.tests.engines.answers import SUMS
from ansible_collections.dgxspark.cluster.tests.engines.kubelet import Pod

pytestmark = pytest.mark.long
PATIENCE_S = 1200  # for a busy machine; a test that passes never waits this long
SOME_SUMS = ("What is 7 + 8?", "What is 0 + 0?", "What is 9 + 9?", "What is 3 + 4?")


def answer(port: int, question: str, expect: str) -> Outcome:
    """Ask as the canary does (serving_canary: the same client, the same guards)."""
    asked = ChatRequest(
        "tiny", f"http://127.0.0.1:{port}/v1", question, max_tokens=256, timeout=PATIENCE_S, expect=expect
    )
    return ask(asked, limits_of(knowledge.load("guards")))


def good(port: int) -> None:
    """Ask the canary's own question and some sums: the answers must be correct, and not garbage."""
    outcome = answer(port, str(ARGUMENTS["prompt"]["default"]), "nineteen, twenty")
    assert (outcome.status, outcome.finish_reason) == ("ok", "stop"), outcome
    for question in SOME_SUMS:
        outcome = answer(port, question, f"^{re.escape(SUMS[question])}$")
        assert outcome.status == "ok", outcome


def child(pod: Pod) -> int:
    """Return the process id of the engine: the only child of process 1."""
    assert pod.process is not None
    pid = pod.process.pid
    (engine,) = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return int(engine)


def marks(pod: Pod) -> list[str]:
    """Return the loads that the node's memory guard would see."""
    return pod.guard.look(time.monotonic())


def unguarded(pod: Pod) -> bool:
    """Whether the guard soon sees no load any more: the supervisor checks its probe's result ten times a second."""
    until = time.monotonic() + 30
    while marks(pod) and time.monotonic() < until:
        time.sleep(0.2)
    return not marks(pod)


def served(port: int) -> str:
    """Return the name that the API gives its model."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=PATIENCE_S) as listed:
        return str(json.load(listed)["data"][0]["id"])


def broken_stream(port: int, pod: Pod) -> tuple[int, float]:
    """Kill the engine once a stream has brought some text; return how many events came, and when it was killed."""
    body = {
        "model": served(port), "messages": [{"role": "user", "content": "What is 1 + 1?"}], "stream": True,
        "temperature": 0, "max_tokens": 1800, "ignore_eos": True,
    }  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    stream = connection.getresponse()
    assert stream.status == 200
    events, killed, ended = 0, 0.0, False
    try:
        for line in stream:
            events += line.startswith(b"data: {")
            ended |= line.startswith(b"data: [DONE]")
            if events == 20 and not killed:
                os.kill(child(pod), signal.SIGKILL)
                killed = time.monotonic()
    except (OSError, http.client.HTTPException):
        pass
    finally:
        connection.close()
    assert killed
    assert not ended, "the answer was whole before the engine was killed"
    return events, killed


def test_the_profile_says_what_the_model_is(model: pathlib.Path) -> None:
    facts = knowledge.load("profile", [str(planned.OWN)])[planned.PROFILE]["facts"]
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    (attention,) = facts["attention"]
    assert facts["architecture"] == config["architectures"][0]
    assert facts["native_context"] == config["max_position_embeddings"]
    assert facts["tied_embeddings"] == config["tie_word_embeddings"]
    assert [facts[name] for name in ("hidden_size", "vocab_size")] == [config["hidden_size"], config["vocab_size"]]
    assert facts["dense"] == {"layers": config["num_hidden_layers"], "intermediate": config["intermediate_size"]}
    assert [attention[name] for name in ("layers", "heads", "kv_heads", "head_dim")] == [
        config[name] for name in ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
    ]


@pytest.fixture
def pod(
    request: pytest.FixtureRequest,
    engine: pathlib.Path,
    model: pathlib.Path,
    overlays: list[str],
    tmp_path: pathlib.Path,
) -> t.Iterator[Pod]:
    made = planned.plan(overlays)
    assert made["verdict"] != "blocked", made["findings"]
    assert made["ranks"][0]["argv"][:3] == ["vllm", "serve", "dgxspark/tiny"]
    own = planned.pod(made, overlays, model, tmp_path / "pod", engine, **getattr(request, "param", {}))
    print(f"\nplanned: {' '.join(made['ranks'][0]['argv'])}")
    yield own
    own.stop()


def api(pod: Pod) -> int:
    """Return the port of the API, as the pod's template has it."""
    return next(int(port["containerPort"]) for port in pod.container["ports"] if port["name"] == "http")


def test_it_serves_is_killed_in_the_middle_of_a_stream_and_comes_back(pod: Pod) -> None:
    pod.start()
    started = pod.wait("started", PATIENCE_S)
    ready = pod.wait("ready", PATIENCE_S)
    print(f"start to ready: {ready - started:.1f} s")
    assert pod.restarts == 0
    engine = child(pod)
    assert int(pathlib.Path(f"/proc/{engine}/oom_score_adj").read_text(encoding="ascii")) == 1000
    assert unguarded(pod)
    good(api(pod))

    events, killed = broken_stream(api(pod), pod)
    ended = pod.wait("ended with", PATIENCE_S)
    assert f"ended with {128 + signal.SIGKILL}" in [what for _at, what in pod.events]
    assert "the engine was killed by SIGKILL" in pod.last_word()
    gone = pod.wait("not ready", PATIENCE_S)
    again = pod.wait("ready", PATIENCE_S, count=2)
    print(
        f"killed after {events} events; supervisor ended {ended - killed:.1f} s later, not ready {gone - killed:.1f} s, "
        f"ready again {again - killed:.1f} s"
    )
    assert child(pod) != engine
    assert unguarded(pod)
    good(api(pod))
