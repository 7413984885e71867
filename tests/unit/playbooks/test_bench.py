"""bench.yml as an owner runs it, against a scripted server: without any inventory, with garbage, in check mode."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import typing as t
from dataclasses import dataclass, field

import jsonschema
import pytest

from ansible_collections.dgxspark.cluster.tests.unit.chat_server import ManyServer, head, sse
from ansible_collections.dgxspark.cluster.tests.unit.owner import NO_ANSIBLE, PROGRAM, ROOT, can_run
from ansible_collections.dgxspark.cluster.tests.unit.sound_server import sound

SCHEMA = json.loads((ROOT / "docs" / "schema" / "bench-report.json").read_text(encoding="utf-8"))
KEY = "sk-not-to-be-seen"

pytestmark = pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)


@pytest.fixture
def server() -> t.Iterator[ManyServer]:
    with ManyServer(answering=sound) as made:
        yield made


@pytest.fixture
def bench(tmp_path: pathlib.Path) -> t.Callable[..., tuple[int, str]]:
    collection = tmp_path / "collections" / "ansible_collections" / "dgxspark"
    collection.mkdir(parents=True)
    (collection / "cluster").symlink_to(ROOT)
    (tmp_path / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")

    def playbook(extra: t.Mapping[str, t.Any], *arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [str(PROGRAM), str(ROOT / "playbooks" / "bench.yml"), "-e",
             json.dumps(extra), *arguments],
            cwd=tmp_path, check=False, capture_output=True, text=True, timeout=600,
            env={
                **os.environ, "ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "collections"), "ANSIBLE_NOCOLOR": "1",
                "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"), "PATH": f"{tmp_path}/bin:/usr/bin:/bin",
            },
        )  # fmt: skip
        output = " ".join((done.stdout + done.stderr).split())
        assert "Traceback" not in output
        return done.returncode, output

    return playbook


@pytest.mark.older_core
def test_a_sound_server_passes_with_report_and_page(
    server: ManyServer, bench: t.Callable[..., tuple[int, str]], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "key").write_text(KEY, encoding="utf-8")
    extra = {
        "dgxspark_bench_url": server.url, "dgxspark_bench_levels": [1, 4], "dgxspark_bench_rounds": 1,
        "dgxspark_bench_api_key_file": "key", "dgxspark_report_file": "out/bench.json", "dgxspark_bench_keep": "out/answers",
    }  # fmt: skip
    code, output = bench(extra, "-vvv")
    assert code == 0, output
    report = json.loads((tmp_path / "out" / "bench.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(SCHEMA).validate(report)
    assert [level["verdict"] for level in report["workloads"][0]["levels"]] == ["good", "good"]
    page = (tmp_path / "out" / "bench.html").read_text(encoding="utf-8")
    assert "<h1>Good</h1>" in page
    assert "4 at once: 4 of 4 requests" in output
    assert "tokens/s as the sum of requests (peak) and by the clock (wall)" in output
    assert len(list((tmp_path / "out" / "answers").iterdir())) == 2
    assert "changed=0" in output
    assert KEY not in output + page + json.dumps(report)


def test_garbage_ends_with_another_status_and_the_report_is_there(
    server: ManyServer, bench: t.Callable[..., tuple[int, str]], tmp_path: pathlib.Path
) -> None:
    """A greeting to everything: each answer alone is a text like any other."""
    server.answering = lambda _request: sse("Hello! ", "How can I help ", "you today?", tokens=7, pause=0.001)
    code, output = bench(
        {"dgxspark_bench_url": server.url, "dgxspark_bench_mode": "quick", "dgxspark_report_file": "b.json"}
    )
    assert code != 0
    assert "With 8 at once its speed does not count, the answers are garbage" in output
    assert "8 of 8 answers to the greedy prompt sent together are wrong, such as 'Hello!" in " ".join(output.split())
    assert (
        json.loads((tmp_path / "b.json").read_text(encoding="utf-8"))["workloads"][0]["levels"][0]["verdict"]
        == "garbage"
    )
    assert "<h1>Garbage</h1>" in (tmp_path / "b.html").read_text(encoding="utf-8")


def test_tokens_per_joule_of_a_server_that_this_inventory_does_not_serve(
    server: ManyServer, bench: t.Callable[..., tuple[int, str]], tmp_path: pathlib.Path
) -> None:
    """The owner says whose power it is. A host that is none of the play's, or none at all, is refused before anything is asked."""
    hosts = f"ansible_connection=local ansible_python_interpreter={sys.executable}"
    (tmp_path / "hosts").write_text(f"[dgx]\nspark1 {hosts}\nspark2 {hosts}\nspark3 {hosts}\n", encoding="utf-8")
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'NVIDIA GB10, P0, 2400, 3003, 40.0, 50, 96'\n", encoding="utf-8")
    program.chmod(0o755)
    extra = {"dgxspark_bench_url": server.url, "dgxspark_bench_levels": [2], "dgxspark_report_file": "b.json"}
    for wrong, said in (
        ("spark1,spark9", "no host of this play: spark9. Hosts: spark1, spark2, spark3"),
        ([], "it is empty"),
    ):
        code, output = bench({**extra, "dgxspark_bench_hosts": wrong}, "-i", "hosts")
        assert code != 0 and said in output, output
    code, output = bench({"dgxspark_bench_hosts": "spark1"}, "-i", "hosts")
    assert code != 0 and "of a model that this inventory serves they are known. Leave it out" in output, output
    assert not server.requests
    server.answering = lambda request: [0.17 if step == 0.004 else step for step in sound(request)]  # 5 s an answer
    code, output = bench({**extra, "dgxspark_bench_hosts": "spark1, spark2"}, "-i", "hosts")
    report = json.loads((tmp_path / "b.json").read_text(encoding="utf-8"))
    assert (code, report["power"]) == (0, {"hosts": ["spark1", "spark2"], "problem": None}), output
    assert report["workloads"][0]["levels"][0]["energy"]["watts"] == pytest.approx(80)
    assert "tok/J" in output


@pytest.mark.more
def test_check_mode_asks_nothing_and_an_absent_tool_is_one_sentence(
    server: ManyServer, bench: t.Callable[..., tuple[int, str]], tmp_path: pathlib.Path
) -> None:
    extra = {"dgxspark_bench_url": server.url, "dgxspark_report_file": "b.json"}
    code, output = bench(extra, "--check")
    assert code == 0, output
    assert not server.requests
    assert not (tmp_path / "b.json").exists()
    code, output = bench({**extra, "dgxspark_bench_crosscheck": "llama-benchy"})
    assert code != 0
    assert (
        "llama-benchy is not installed on the controller, or not on PATH. Install it: pip install llama-benchy"
        in output
    )
    assert not any(request.body for request in server.requests)


@pytest.mark.more
def test_a_crosscheck_that_fails_costs_none_of_what_was_measured(
    server: ManyServer, bench: t.Callable[..., tuple[int, str]], tmp_path: pathlib.Path
) -> None:
    """As llama-benchy 0.4.0 exits for a model that does not know the capital of France."""
    said = "Benchmark failed due to coherence test failure."
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "llama-benchy").write_text(f"#!/bin/sh\necho '{said}'\nexit 1\n", encoding="utf-8")
    (tmp_path / "bin" / "llama-benchy").chmod(0o755)
    extra = {
        "dgxspark_bench_url": server.url, "dgxspark_bench_levels": [1], "dgxspark_bench_rounds": 1,
        "dgxspark_report_file": "b.json", "dgxspark_bench_crosscheck": "llama-benchy",
    }  # fmt: skip
    code, output = bench(extra)
    assert code != 0
    assert f"llama-benchy produced no result (exit status 1): {said}" in output
    report = json.loads((tmp_path / "b.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(SCHEMA).validate(report)
    assert report["workloads"][0]["levels"][0]["verdict"] == "good"
    assert said in report["crosscheck"]["problem"]


@dataclass
class SafeServer(ManyServer):
    """The stand-in with TLS."""

    context: ssl.SSLContext = field(default_factory=lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def _one(self, line: socket.socket) -> None:
        with self.context.wrap_socket(line, server_side=True) as safe:
            super()._one(safe)


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not here")
def test_a_server_with_tls_is_trusted_by_its_authority_s_file_or_unchecked(
    bench: t.Callable[..., tuple[int, str]], tmp_path: pathlib.Path
) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "ca.pem", "-days", "2",
         "-subj", "/CN=stand-in", "-addext", "subjectAltName=IP:127.0.0.1"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    with SafeServer(answering=sound) as server:
        server.context.load_cert_chain(tmp_path / "ca.pem", tmp_path / "key.pem")
        extra = {
            "dgxspark_bench_url": server.url.replace("http:", "https:"), "dgxspark_bench_levels": [1],
            "dgxspark_bench_rounds": 1, "dgxspark_report_file": "b.json",
        }  # fmt: skip
        code, output = bench(extra)
        assert code != 0
        assert "TLS fails" in output
        assert not server.requests
        for trusted in ({"dgxspark_bench_ca_path": "ca.pem"}, {"dgxspark_bench_validate_certs": "false"}):
            code, output = bench(extra | trusted)
            assert code == 0, output


@pytest.mark.more
def test_without_a_url_an_inventory_is_needed(bench: t.Callable[..., tuple[int, str]]) -> None:
    code, output = bench({})
    assert code != 0
    assert "inventory" in output


REAL = os.environ.get("DGXSPARK_LLAMA_BENCHY") or shutil.which("llama-benchy")


@pytest.mark.long
@pytest.mark.skipif(
    not REAL, reason="not run: llama-benchy (PyPI) is not there; DGXSPARK_LLAMA_BENCHY names its program"
)
def test_the_arenas_matrix_is_the_real_tools_own(
    bench: t.Callable[..., tuple[int, str]], tmp_path: pathlib.Path
) -> None:
    """One run: depth by concurrency, its file as it wrote it, and the same figures in report and page."""
    vocabulary = {word: number for number, word in enumerate(["[UNK]", *(f"w{n}" for n in range(200))])}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    parts = ("normalizer", "post_processor", "decoder", "truncation", "padding")
    tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model}
    (tmp_path / "tokenizer").mkdir()
    text = json.dumps(tokenizer | dict.fromkeys(parts))
    (tmp_path / "tokenizer" / "tokenizer.json").write_text(text, encoding="utf-8")
    book = " ".join(f"w{number % 200}" for number in range(3000))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "llama-benchy").symlink_to(str(REAL))
    with ManyServer(answering=asked_for_paris, pages={"/book": lambda: book}) as server:
        given = ["--tokenizer", str(tmp_path / "tokenizer"), "--book-url", server.url.replace("/v1", "/book")]
        given += ["--pp", "32", "--tg", "16", "--runs", "2", "--latency-mode", "none"]
        code, output = bench({
            "dgxspark_bench_url": server.url, "dgxspark_bench_mode": "arena", "dgxspark_report_file": "b.json",
            "dgxspark_bench_levels": [1, 2], "dgxspark_bench_depths": [0, 64], "dgxspark_bench_crosscheck_arguments": given,
        })  # fmt: skip
    assert code == 0, output
    report = json.loads((tmp_path / "b.json").read_text(encoding="utf-8"))
    jsonschema.validate(report, SCHEMA)
    own = json.loads((tmp_path / "b.llama-benchy.json").read_text(encoding="utf-8"))
    rows = {(row["concurrency"], row["context_size"]): row for row in own["benchmarks"]}
    levels = {(level["n"], level["depth"]): level for level in report["crosscheck"]["levels"]}
    assert rows.keys() == levels.keys() == {(1, 0), (2, 0), (1, 64), (2, 64)}
    assert {place: row["tg_throughput"]["mean"] for place, row in rows.items()} == {
        place: level["tokens_per_s"] for place, level in levels.items()
    }
    page = (tmp_path / "b.html").read_text(encoding="utf-8")
    assert "prompt tokens/s" in page and "64 tokens of context" in output


def asked_for_paris(request: t.Any) -> t.Any:
    """Answer as a sound server, without a stream if none is asked for: the tool first asks whether the model is sound."""
    if request.body.get("stream"):
        return sound(request)
    choice = {"index": 0, "message": {"role": "assistant", "content": "Paris."}, "finish_reason": "stop"}
    said = {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}
    return [head(kind="application/json", chunked=False), json.dumps(said).encode()]
