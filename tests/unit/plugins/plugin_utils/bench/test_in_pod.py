"""The program of a pod that measures, as a pod runs it: its files alone, no Ansible and no YAML on Python's path."""

from __future__ import annotations

import ast
import json
import os
import pathlib
import re
import subprocess
import sys
import typing as t

import jsonschema
import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.source import tree_of
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import in_pod, known
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench.wanted import BenchRequest
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube import bench_pod
from ansible_collections.dgxspark.cluster.tests.unit.chat_server import ManyServer
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT
from ansible_collections.dgxspark.cluster.tests.unit.sound_server import sound

SCHEMA = json.loads((ROOT / "docs" / "schema" / "bench-report.json").read_text("utf-8"))
KEY = "sk-not-to-be-seen"


def laid(folder: pathlib.Path, wanted: BenchRequest) -> pathlib.Path:
    made = folder / "programs"
    for path, text in {**bench_pod.sources(), in_pod.ASKED: bench_pod.program_input(wanted, known.load())}.items():
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        (made / path).write_text(text, encoding="utf-8")
    return made


def run(programs: pathlib.Path) -> tuple[str, dict[str, t.Any]]:
    """Return its progress output and its document. -S: none of this Python's own packages."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", str(programs / in_pod.PROGRAM)],
        check=False, capture_output=True, text=True, timeout=120, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    before, mark, after = done.stdout.partition(f"{in_pod.MARK}\n")
    assert mark and after.count("\n") == 1
    return before, json.loads(after)


def test_it_measures_with_its_files_alone_and_tells_no_answer(tmp_path: pathlib.Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n", encoding="utf-8")
    with ManyServer(answering=sound) as server:
        wanted = BenchRequest(server.url, key_file=str(tmp_path / "key"), levels=(1, 4), rounds=1, place="pod")
        said, document = run(laid(tmp_path, wanted))
        assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}
    report = document["report"]
    jsonschema.Draft202012Validator(SCHEMA).validate(report)
    assert (report["from"], report["url"]) == ("pod", server.url)
    assert [level["verdict"] for level in report["workloads"][0]["levels"]] == ["good", "good"]
    assert "chat: 4 at once: 4 of 4 requests" in said
    assert KEY not in said + json.dumps(document)
    assert "one, two, three" not in said + json.dumps(document), "an answer's text"


def test_a_server_that_is_not_there_is_one_sentence(tmp_path: pathlib.Path) -> None:
    _said, document = run(laid(tmp_path, BenchRequest("http://127.0.0.1:1/v1", place="pod")))
    assert "the connection is refused" in document["error"]


def test_an_old_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 1))
    assert "3.9.1) is too old, 3.10 or newer is needed. Measure from the controller" in in_pod.lacks()


def test_the_tree_has_what_is_imported_and_no_more() -> None:
    tree = tree_of(in_pod, "x.py")
    names = {path.rpartition("/")[2] for path in tree}
    assert {"x.py", "values.py", "run.py", "load.py", "http1.py", "guards.py"} <= names
    assert not names & {"knowledge.py", "known.py", "in_pod.py", "terminal.py", "http_client.py"}
    assert not [
        path for path, text in tree.items() if re.search(r"(?m)^(import|from) (yaml|jsonschema|httpx|ansible\.)", text)
    ]
    for path, text in tree.items():
        ast.parse(text, path, feature_version=in_pod.OLDEST)
        assert not re.search(r"datetime\.UTC\)|asyncio\.(timeout|TaskGroup|Runner)\(|import tomllib|StrEnum", text), (
            path
        )
    assert sum(map(len, tree.values())) < 400_000, "a ConfigMap holds 1 MiB"
