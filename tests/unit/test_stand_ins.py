"""Stand-ins refuse what the real programs refuse."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.tests.stand_ins.hub import Hub, Repo
from ansible_collections.dgxspark.cluster.tests.stand_ins.outside import Outside
from ansible_collections.dgxspark.cluster.tests.stand_ins.scripted_engine import answer_of
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT


@pytest.mark.parametrize("words", ["--model-path m --tp-size 1", "serve m --tensor-parallel-size 1 --headless"])
def test_the_scripted_engine_refuses_flags_that_the_release_does_not_have(words: str) -> None:
    command = [sys.executable, str(ROOT / "tests/stand_ins/scripted_engine.py"), *words.split()]
    ran = subprocess.run([*command, "--no-such", "1", "--fp9"], check=False, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2
    assert "error: unrecognized arguments: --fp9 --no-such" in ran.stderr


@pytest.mark.parametrize("prompt", knowledge.load("workloads")["known"]["prompts"], ids=lambda prompt: prompt["ask"])
def test_the_scripted_engine_knows_what_the_bench_asks_and_no_question_has_its_answer(prompt: dict[str, str]) -> None:
    assert re.search(prompt["expect"], answer_of(prompt["ask"]) or "")
    assert re.search(prompt["early"], prompt["ask"]) and not re.search(prompt["expect"], prompt["ask"], re.IGNORECASE)


@pytest.mark.parametrize(
    ("program", "words", "said"),
    [
        ("systemctl", "frobnicate", "Unknown command verb"),
        ("systemctl", "show --nosuch a.service", "unrecognized option '--nosuch'"),
        ("systemctl", "start --now a.service", "unrecognized option '--now'"),
        ("journalctl", "--nosuch -u a.service", "unrecognized option '--nosuch'"),
    ],
)
def test_systemctl_refuses_words_that_it_does_not_know(
    program: str, words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = runpy.run_path(str(ROOT / "tests/stand_ins/systemctl"), run_name="stand_in")
    assert made[program](words.split()) == 1
    assert said in capsys.readouterr().err


def status(url: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as exc:
        return exc.code


def test_the_hub_and_what_is_outside_refuse_what_they_do_not_have() -> None:
    hub = Hub()
    hub.repos["owner/model"] = Repo({"config.json": b"{}"})
    try:
        for place, code in (
            ("owner/model/resolve/main/config.json", 200),
            ("owner/model/resolve/main/none.json", 404),
            ("owner/model/resolve/other/config.json", 404),
            ("owner/none/resolve/main/config.json", 401),
            ("cdn/owner/model/none.json", 404),
            ("cdn/owner/none/config.json", 404),
            ("api/datasets/owner/model", 404),
        ):
            assert status(f"{hub.url}/{place}") == code, place
    finally:
        hub.stop()
    outside = Outside()
    outside.files["/a"] = b"abc"
    try:
        for asked, code in (("bytes=1-", 206), ("bytes=9-", 416), ("bytes=-1", 501), ("bytes=0-0,2-2", 501)):
            assert status(f"{outside.url}/a", Range=asked) == code, asked
    finally:
        outside.stop()
