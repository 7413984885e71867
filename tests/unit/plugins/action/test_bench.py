"""The action plugin bench against a stand-in server: one report, whatever the outcome, and no key anywhere."""

from __future__ import annotations

import gzip
import json
import pathlib
import types
import typing as t

import jsonschema
import pytest
from ansible.playbook.task import Task

from ansible_collections.dgxspark.cluster.plugins.action.bench import ActionModule
from ansible_collections.dgxspark.cluster.tests.unit.chat_server import CLOSE, ManyServer, sse
from ansible_collections.dgxspark.cluster.tests.unit.sound_server import sound

SCHEMA = json.loads((pathlib.Path(__file__).parents[4] / "docs" / "schema" / "bench-report.json").read_text("utf-8"))
KEY = "sk-not-to-be-seen"


def run(check: bool = False, **arguments: t.Any) -> dict[str, t.Any]:
    task = Task()
    task.args = arguments
    task.check_mode = check
    connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir=None))
    result = dict(ActionModule(task, connection, None, None, None, None).run(task_vars={}))
    if result.get("bench"):
        jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(result["bench"])))
    return result


@pytest.fixture
def server() -> t.Iterator[ManyServer]:
    with ManyServer(answering=sound) as made:
        yield made


def test_a_sound_server_is_measured_and_every_answer_kept(server: ManyServer, tmp_path: pathlib.Path) -> None:
    key = tmp_path / "key"
    key.write_text(f"{KEY}\n", encoding="utf-8")
    kept = tmp_path / "answers"
    result = run(
        url=server.url, key_file=str(key), workloads=["chat", "code"], levels=[1, 4], rounds=1, keep_to=str(kept)
    )
    assert not result.get("failed"), result
    assert result["changed"] is False
    measured = result["bench"]
    assert measured["model"] == "stand-in"
    found = {w["name"]: [(level["n"], level["verdict"]) for level in w["levels"]] for w in measured["workloads"]}
    assert found == {"chat": [(1, "good"), (4, "good")], "code": [(1, "good"), (4, "good")]}
    figures = measured["workloads"][0]["levels"][1]["figures"]
    assert (figures["ok"], figures["failed"], figures["tokens"]) == (4, 0, 120)
    assert figures["peak_tokens_per_s"] > figures["wall_tokens_per_s"] > 0
    assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}
    assert KEY not in json.dumps(result)
    files = sorted(kept.iterdir())
    assert [path.name for path in files] == [f"{w}-n{n}.jsonl.gz" for w in ("chat", "code") for n in (1, 4)]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    texts = [json.loads(line) for line in gzip.decompress(files[1].read_bytes()).splitlines()]
    assert [text["tokens"] for text in texts] == [30] * 4
    assert all(len(text["content"].split()) == 30 for text in texts)


def test_garbage_fails_the_task_and_the_report_is_there(server: ManyServer) -> None:
    server.answering = lambda _request: sse(*["! "] * 500, reason="length", tokens=500)
    result = run(url=server.url, levels=[2], rounds=1)
    assert result["failed"]
    said = [
        "chat: 2 at once: the answers to 2 of 2 requests are garbage",
        "the answers to 4 of 4 requests of the greedy prompt are garbage",  # as many as are needed to judge a batch
        "the answers to 2 of 2 requests of the greedy prompt alone are garbage",
    ]
    assert [words for words in said if words not in result["msg"]] == []
    assert result["msg"].count("Stop using it") == 1
    (level,) = result["bench"]["workloads"][0]["levels"]
    assert (level["verdict"], level["figures"]["peak_tokens_per_s"]) == ("garbage", None)


def test_a_failed_request_fails_the_task(server: ManyServer) -> None:
    server.answering = lambda request: [] if "bread" in request.body["messages"][0]["content"] else sound(request)
    result = run(url=server.url, levels=[4], rounds=1)
    assert result["failed"]
    (level,) = result["bench"]["workloads"][0]["levels"]
    assert (level["verdict"], level["figures"]["ok"], level["figures"]["failed"]) == ("failed", 3, 1)
    assert sum(level["causes"].values()) == 1


def test_a_server_that_goes_away_ends_workloads_and_levels_which_are_named(server: ManyServer) -> None:
    server.answering = lambda _request: [CLOSE]
    result = run(url=server.url, workloads=["chat", "code"], levels=[1, 2], rounds=1)
    assert result["failed"]
    (only,) = result["bench"]["workloads"]
    assert [level["n"] for level in only["levels"]] == [1]
    assert "So 2 at once were not tried. Nor were the workloads code tried." in result["msg"]


def test_check_mode_asks_nothing(server: ManyServer) -> None:
    result = run(check=True, url=server.url)
    assert (result["skipped"], result["changed"]) == (True, False)
    assert not server.requests


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"workloads": ["nothing"]}, "There is no workload 'nothing'. Known: agents, chat"),
        ({"workloads": []}, "workloads: name one or more"),
        ({"levels": [0]}, "levels, rounds and seconds must be more than 0"),
        ({"key_file": "/nowhere"}, "key_file: /nowhere cannot be read"),
        ({"url": "nowhere"}, "'nowhere' is not a URL"),
        ({"url": "http://127.0.0.1:1/v1"}, "the connection is refused"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(server: ManyServer, more: dict[str, t.Any], words: str) -> None:
    result = run(**({"url": server.url} | more))
    assert result["failed"]
    assert result["msg"].startswith("dgxspark.cluster.bench: ")
    assert words in result["msg"]
    assert not any(request.body for request in server.requests)
