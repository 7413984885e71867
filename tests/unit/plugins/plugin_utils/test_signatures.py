"""What becomes of matched lines: causes before consequences, nothing made up, all kinds of files."""

from __future__ import annotations

import gzip
import itertools
import json
import pathlib
import typing as t

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Reader
from ansible_collections.dgxspark.cluster.plugins.module_utils.signatures import Reading
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge, signatures
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.knowledge import KnowledgeError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import explained, transport
from ansible_collections.dgxspark.cluster.tests.unit.owner import ROOT

REPORT = jsonschema.Draft202012Validator(
    json.loads((ROOT / "docs" / "schema" / "explain-report.json").read_text(encoding="utf-8"))
)
TABLE = signatures.load_table()
EXAMPLES = {name: " ".join(entry["example"].split()) for name, entry in knowledge.load("signatures").items()}


def explain(**logs: str) -> dict[str, t.Any]:
    made = signatures.explain([signatures.read_text(text, TABLE, name) for name, text in logs.items()], TABLE)
    REPORT.validate(made["report"])
    return t.cast(dict[str, t.Any], made["report"] | {"table": made["table"]})


def lines(*names: str) -> str:
    return "\n".join(["[2026-05-26 13:30:05 TP0] Load weight begin.", *(EXAMPLES[name] for name in names), "end"])


def test_a_timeout_on_one_rank_is_a_symptom_of_a_kill_on_another() -> None:
    report = explain(
        rank2=lines("torch.nccl-watchdog", "sglang.child-failed"), rank3_kernel=lines("kernel.oom-kill"), rank0=lines()
    )
    first, *others = report["findings"]
    assert first["id"] == "kernel.oom-kill" and first["root"]
    assert set(first["follows"]) == {"torch.nccl-watchdog", "sglang.child-failed"}
    assert not any(finding["root"] for finding in others)
    assert first["seen"] == [first["seen"][0] | {"log": "rank3_kernel", "first": 2, "last": 2, "count": 1}]
    text = "\n".join(report["table"])
    assert (
        text.index("CAUSE 1")
        < text.index("rank3_kernel:2")
        < text.index("likely follows from it")
        < text.index("rank2:2")
    )
    assert "CAUSE 2" not in text


# The lines that the five seeds quote, as they quote them: cut, without what follows in the real log.
QUOTED = [
    ("ibv_modify_qp fails with “Network is unreachable”", "nccl.gid-no-route"),
    ("torch.AcceleratorError: CUDA error: an illegal instruction was encountered", "engine.illegal-instruction"),
    ("(cudaErrorIllegalInstruction).", "engine.illegal-instruction"),
    ("Cannot access data pointer of FakeTensor", "engine.fake-tensor"),
    ("ValueError: Speculative decoding for Qwen3_5MoeForConditionalGeneration is not compatible with radix cache when using "
     "--mamba-scheduler-strategy no_buffer.", "sglang.mamba-radix"),
    ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "sglang.pool-too-small"),
    ("AssertionError: mismatch in expected `n`  (nx2_w1 == intermediate_size_per_partition * 2)", "sglang.mismatch-n"),
    ("AssertionError: mismatch in expected n in cutlass_moe_fp4", "sglang.mismatch-n"),
    ("ValueError: No module or parameter named 'model.language_model'", "engine.unknown-weight"),
    ("FlashInfer Internal Error: Invalid configuration :", "engine.flashinfer-shape"),
    ("NUM_MMA_Q=1 FlashInfer Internal Error: Invalid configuration : NUM_MMA_Q=1 (prefill.cuh:2978)", "engine.flashinfer-shape"),
    ("Failed to initialize cutlass TMA WS grouped gemm", "engine.autotuner-tma-ws"),
    ("[Autotuner]: Skipping tactic 14 … Failed to initialize cutlass TMA WS grouped gemm (M128_BS_group4)", "engine.autotuner-tma-ws"),
    ("(“the first layer might not be an attention layer” — the hybrid pattern starts with", "sglang.triton-hybrid"),
    ("RuntimeError: cuDNN is not available", "engine.cudnn-missing"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "name"), QUOTED, ids=[name for _line, name in QUOTED])
def test_every_error_that_a_seed_quotes_is_explained(line: str, name: str) -> None:
    (finding,) = explain(pod=f"[2026-05-26 13:30:05 TP0] Load weight begin.\n{line}\n")["findings"]
    assert finding["id"] == name
    assert finding["benign"] or finding["remedy"]


@pytest.mark.parametrize(
    ("root", "symptoms"),
    [
        ("kernel.nvrm-no-memory", ["kernel.soft-lockup", "kernel.hung-task", "sglang.other-ranks"]),
        ("nccl.ib-no-device", ["nccl.network-not-found", "torch.nccl-error", "sglang.scheduler-dead"]),
        ("kernel.xid-13", ["kernel.xid-45", "engine.illegal-instruction", "vllm.engine-dead", "torch.store-gone"]),
        ("kernel.mlx5-module-hot", ["kernel.mlx5-link-down", "vllm.rpc-timeout", "vllm.engine-dead"]),
        ("k3s.vf-not-found", ["k3s.multus-add"]),
        ("firmware.sec2-timeout", ["firmware.gsp-init", "k3s.no-gpu-left"]),
        ("sglang.pool-too-small", ["sglang.scheduler-dead", "sglang.other-ranks", "sglang.child-failed"]),
        ("vllm.less-than-desired", ["vllm.engine-start"]),
    ],
)
def test_known_sequences_have_one_cause_in_whatever_order(root: str, symptoms: list[str]) -> None:
    for order in itertools.islice(itertools.permutations([root, *symptoms]), 12):
        report = explain(log=lines(*order))
        assert [finding["id"] for finding in report["findings"] if finding["root"]] == [root]
        assert set(report["findings"][0]["follows"]) == set(symptoms)


def test_two_causes_that_have_nothing_to_do_with_each_other_stay_two() -> None:
    report = explain(log=lines("k3s.nad-missing", "engine.disk-full", "kernel.page-allocation"))
    assert [f["id"] for f in report["findings"] if f["root"]] == [
        "k3s.nad-missing",
        "engine.disk-full",
        "kernel.page-allocation",
    ]
    assert report["headline"].endswith("(and 2 more)")


def test_a_symptom_alone_is_named_as_what_it_is() -> None:
    report = explain(log=lines("sglang.child-failed"))
    assert [(f["id"], f["root"]) for f in report["findings"]] == [("sglang.child-failed", True)]


def test_of_an_unknown_log_no_cause_is_made_up() -> None:
    report = explain(log="segfault in my own program\nerror 42\n")
    assert report["findings"] == []
    assert report["headline"].startswith("NOTHING KNOWN FOUND in 3 lines of 1 log")
    assert "does not mean that nothing is wrong" in report["headline"]
    assert report["table"] == [report["headline"], "", signatures.LAST, "  log:2: error 42"]
    assert explain(log="INFO all is well, 0 errors\n")["table"][1:] == []


UNKNOWN = """(Worker pid=3) INFO 08-27 17:54:02 [model.py:679] Resolved architecture: X, ignore errors
(Worker pid=3) Traceback (most recent call last):
(Worker pid=3)   File "/usr/lib/python3.12/site-packages/engine/run.py", line 41, in run
(Worker pid=3)     go()
(Worker pid=3)   File "/usr/lib/python3.12/site-packages/engine/layer.py", line 7, in forward
(Worker pid=3)     raise GoneError
(Worker pid=3) engine.GoneError: the third wheel is gone, Authorization: Bearer abcdefghijklmnop
tail: cannot open the rest
"""
PLAIN = [
    ("spark-a:158:188 [0] x/y.cc:786 NCCL WARN the moon is in the way", "NCCL WARN the moon is in the way"),
    ("Warning  Wobbling  5s  kubelet  the node wobbles", "the node wobbles"),
    ("  \u00d7 No solution found when resolving dependencies:", "No solution found"),
    ("E: Sub-process /usr/bin/x returned an error code (1)", "error code (1)"),
    ("docker: Error response from daemon: no moon today.", "no moon today"),
]


def test_a_log_that_ends_in_an_unknown_error_shows_that_and_where_it_arose() -> None:
    report = explain(a=UNKNOWN, b="INFO nothing here\n", c=PLAIN[0][0])
    assert [(one["log"], one["line"], one["frame"]) for one in report["ended"]] == [
        ("a", 7, "/usr/lib/python3.12/site-packages/engine/layer.py:7, forward"),
        ("c", 1, ""),
    ]
    assert report["ended"][0]["excerpt"].endswith("GoneError: the third wheel is gone, Authorization: ***")
    text = "\n".join(report["table"])
    assert "this is where it ended" in text and "(arose in /usr/lib" in text


@pytest.mark.parametrize(("line", "shown"), PLAIN)
def test_every_kind_of_line_that_reports_an_error_is_shown_if_nothing_is_known(line: str, shown: str) -> None:
    report = explain(log=f"starting\n{line}\nINFO done, without errors\n")
    assert not report["findings"] and report["headline"].startswith("NOTHING KNOWN")
    assert [shown in one["excerpt"] for one in report["ended"]] == [True]


def test_beside_a_cause_that_is_known_no_unknown_error_is_shown() -> None:
    assert explain(log=lines("engine.disk-full") + "\nerror 42\n")["ended"] == []
    assert explain(log=lines("vllm.engine-start") + "\nerror 42\n")["ended"]
    assert explain(log=lines("engine.autotuner-tma-ws"))["ended"] == []


ORDERLY = """[2026-11-28 16:17:49] SIGTERM received. signum=None frame=None. Draining requests and shutting down...
[2026-11-28 16:17:50] Subprocess scheduler_0 (pid=222) crashed with exit code -15. Triggering SIGQUIT for cleanup...
[2026-11-28 16:17:50] SIGQUIT received. signum=None, frame=None. It usually means one child failed.
supervisor: rank 0: stopped by SIGTERM.
"""
ORDERLY_ELSEWHERE = """[2026-11-28 16:17:49 TP1] Scheduler hit an exception: Traceback (most recent call last):
RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Read error [10.100.0.1]:5531: Connection reset by peer
[2026-11-28 16:17:49] Received sigquit from a child process. It usually means the child failed.
supervisor: rank 1: the head at 10.100.0.1 is lost: rank 0: stopped by SIGTERM.
"""


@pytest.mark.parametrize("log", [ORDERLY, ORDERLY_ELSEWHERE])
def test_an_orderly_stop_is_no_crash(log: str) -> None:
    """Real lines of SGLang 0.5.12 as two ranks: it ends its own processes as if they had crashed."""
    report = explain(log=log)
    assert [finding["id"] for finding in report["findings"] if finding["root"]] == ["engine.stopped"]
    follows = report["findings"][0]["follows"]
    assert "sglang.child-failed" in follows and any(name.startswith("sglang.scheduler-") for name in follows)


def test_harmless_lines_are_no_cause_and_are_explained() -> None:
    report = explain(log=lines("engine.autotuner-tma-ws", "kernel.mlx5-slot-power", "engine.autotuner-tma-ws"))
    assert report["headline"].startswith("NOTHING KNOWN FOUND")
    assert {f["id"] for f in report["findings"] if f["benign"] and not f["root"]} == {
        "engine.autotuner-tma-ws",
        "kernel.mlx5-slot-power",
    }
    text = "\n".join(report["table"])
    assert "HARMLESS" in text and "99 KB" in text and "CAUSE" not in text


def test_what_a_line_says_is_put_into_the_words() -> None:
    report = explain(log=lines("nccl.versions"))
    assert report["findings"][0]["cause"] == "Rank 0 has NCCL 22809, rank 1 has 22907."


@given(st.lists(st.sampled_from(sorted(EXAMPLES)), max_size=12, unique=True))
def test_whatever_is_found_every_consequence_has_a_cause_that_was_found(names: list[str]) -> None:
    report = explain(log=lines(*names))
    found = {finding["id"]: finding for finding in report["findings"]}
    assert set(found) == set(names)
    for name, finding in found.items():
        explained = any(name in other["follows"] for other in report["findings"])
        assert finding["root"] == (not explained and not finding["benign"])
        assert set(finding["follows"]) <= set(found)
        assert name not in finding["follows"]
    ranks = [(f["benign"], not f["root"] and not f["benign"]) for f in report["findings"]]
    assert ranks == sorted(ranks)


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_folder_is_read_whole_and_what_is_no_log_is_said(tmp_path: pathlib.Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "rank1.log").write_text(lines("engine.disk-full"), encoding="utf-8")
    (tmp_path / "rank0.log.gz").write_bytes(gzip.compress(lines("k3s.cdi").encode()))
    (tmp_path / "core").write_bytes(b"\x7fELF\x00\x00")
    (tmp_path / "empty.log").write_text("", encoding="utf-8")
    (tmp_path / ".hidden").write_text(lines("kernel.oom-kill"), encoding="utf-8")
    readings = signatures.read_path(str(tmp_path), TABLE)
    assert [(r.name, [h.id for h in r.hits], bool(r.error)) for r in readings] == [
        ("core", [], True),
        ("empty.log", [], True),
        ("rank0.log.gz", ["k3s.cdi"], False),
        ("b/rank1.log", ["engine.disk-full"], False),
    ]
    shown = signatures.explain(readings, TABLE)["table"]
    assert "NOT READ:" in shown and "  empty.log: it is empty." in shown


@pytest.mark.parametrize("code", ["utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_log_that_begins_with_a_mark_is_read_as_it_says(
    tmp_path: pathlib.Path, code: str, pack: t.Callable[[bytes], bytes]
) -> None:
    """As Windows' programs write what ssh prints; no mark is shown, and the lines keep their numbers."""
    text = "caf\u00e9 \U0001f600\r\n" * 1000 + lines("kernel.oom-kill")
    (tmp_path / "x.log").write_bytes(pack((("\ufeff" if code == "utf-16-be" else "") + text).encode(code)))
    (tmp_path / "plain.log").write_bytes(text.encode())
    [reading], [plain] = (signatures.read_path(str(tmp_path / name), TABLE) for name in ("x.log", "plain.log"))
    assert (reading.hits, reading.lines) == (plain.hits, plain.lines) and plain.hits[0].first > 1000
    (tmp_path / "y.log").write_bytes(lines("kernel.oom-kill").encode("utf-8-sig"))
    assert not signatures.read_path(str(tmp_path / "y.log"), TABLE)[0].hits[0].excerpt.startswith(("?", "\ufeff"))


@pytest.mark.parametrize("content", [b"", b"\x00\x01\x02", b"\x1f\x8bnot gzip", gzip.compress(b"\x00\x00")])
def test_one_file_that_is_no_log_is_one_error(tmp_path: pathlib.Path, content: bytes) -> None:
    (tmp_path / "x.log").write_bytes(content)
    with pytest.raises(
        CollectionError, match=r"log: .*x\.log: (it is empty|no log: (this is not text|it is not a complete gzip))"
    ):
        signatures.read_path(str(tmp_path / "x.log"), TABLE)


@pytest.mark.parametrize(
    ("path", "needle"),
    [
        ("-", "-e log=<"),
        ("/nowhere/x.log", "cannot be read: No such file"),
        ("NCCL WARN x\nNCCL WARN y", "log_text"),
        ("logs/rank*.log", "No pattern is expanded here: name the folder"),
        ("a.log,b.log", r"""Several logs are a list: -e '\{"log": \["a.log", "b.log"\]\}'$"""),
    ],
)
def test_a_path_that_is_none_is_one_error_with_what_to_do(path: str, needle: str) -> None:
    with pytest.raises(CollectionError, match=needle):
        signatures.read_path(path, TABLE)


def test_an_empty_folder_and_an_empty_text_are_errors(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CollectionError, match="no files"):
        signatures.read_path(str(tmp_path), TABLE)
    with pytest.raises(CollectionError, match="it is empty"):
        signatures.read_text(" \n", TABLE)


def test_a_reading_survives_its_way_from_a_node() -> None:
    reading = signatures.read_text(lines("nccl.versions", "kernel.oom-kill"), TABLE)
    plain = json.loads(json.dumps(to_plain([reading])))
    (again,) = signatures.readings_of(plain, "spark1")
    assert to_plain(again) == to_plain(reading)
    with pytest.raises(CollectionError, match="spark1"):
        signatures.readings_of("x", "spark1")


def test_what_no_signature_is_named_is_left_out() -> None:
    """A node may have been read with a table that has changed since."""
    reading = Reading("log", 3, signatures.read_text(lines("k3s.cdi"), TABLE).hits)
    reading.hits[0].id = "gone.entry"
    assert signatures.findings([reading], TABLE) == []


# --- an owner's entries -----------------------------------------------------------------------------------------------

OWN = {
    "id": "engine.ours",
    "component": "engine",
    "pattern": "our own trouble",
    "example": "our own trouble",
    "origin": "real",
    "severity": "error",
    "benign": False,
    "cause": "Ours.",
    "remedy": "Mend it.",
    "source": ["us"],
    "verified": "measured",
}


def overlay(folder: pathlib.Path, **changes: t.Any) -> str:
    (folder / "signatures").mkdir(exist_ok=True)
    (folder / "signatures" / "own.yml").write_text(yaml.safe_dump(OWN | changes), encoding="utf-8")
    return str(folder)


def test_an_owner_may_add_to_the_table(tmp_path: pathlib.Path) -> None:
    table = signatures.load_table([overlay(tmp_path)])
    reading = signatures.read_text("our own trouble\n" + EXAMPLES["torch.store-gone"], table)
    assert [(f["id"], f["follows"]) for f in signatures.findings([reading], table)] == [
        ("engine.ours", ["torch.store-gone"]),
        ("torch.store-gone", []),
    ]


@pytest.mark.parametrize(
    ("changes", "needle"),
    [
        ({"follows_from": ["engine.nothing"]}, "there is no signature 'engine.nothing'"),
        ({"follows_from": ["torch.store-gone"]}, "follows from itself"),
        ({"pattern": "our own ("}, "not a regular expression"),
        ({"remedy": ""}, "remedy"),
    ],
)
def test_a_bad_entry_is_refused_by_name(tmp_path: pathlib.Path, changes: dict[str, t.Any], needle: str) -> None:
    with pytest.raises(CollectionError, match=needle) as caught:
        signatures.load_table([overlay(tmp_path, **changes)])
    assert isinstance(caught.value, KnowledgeError) or "engine.ours" in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        "Link not found",  # by the interface's name
        # By PCI address, as with the SR-IOV device plugin: the VF does not exist, and another pod has it.
        "no net directory under pci device 0000:01:10.0",
        "failed to find network device in path /sys/bus/pci/devices/0000:01:10.0/net",
    ],
)
def test_a_vf_that_is_not_on_the_node_is_known_however_it_was_looked_for(words: str) -> None:
    said = f"FailedCreatePodSandBox: plugin host-device (net1): failed to find host device: {words}"
    assert [finding["id"] for finding in explain(events=said)["findings"]] == ["k3s.vf-not-found"]


BESIDE = [(name, sign) for name, said in TABLE.beside.items() for sign in sorted(said.signs)]


@pytest.mark.parametrize(("name", "sign"), BESIDE)
def test_what_is_harmless_elsewhere_is_not_called_so_beside_a_watchdog_that_fired(name: str, sign: str) -> None:
    alone, both = explain(log=lines(name)), explain(log=lines(name), other=lines(sign))
    (said,) = alone["findings"]
    assert said["benign"] and said["severity"] == "info"
    (beside,) = (finding for finding in both["findings"] if finding["id"] == name)
    assert not beside["benign"] and beside["severity"] == "warning" and beside["cause"] != said["cause"]
    assert "HARMLESS" not in "\n".join(both["table"])
    assert name in next(f for f in both["findings"] if f["id"] == sign)["follows"]


def test_a_watchdog_has_lines_that_are_not_harmless_beside_it() -> None:
    assert {"vllm.broadcast-wait", "sglang.custom-allreduce-off", "nccl.abort-complete"} <= {n for n, _ in BESIDE}


def test_a_harmless_line_beside_a_watchdog_is_put_to_the_watchdogs_own_cause() -> None:
    report = explain(log=lines("vllm.broadcast-wait", "torch.nccl-watchdog"), journal=lines("kernel.oom-kill"))
    assert [f["id"] for f in report["findings"] if f["root"]] == ["kernel.oom-kill"]
    assert "vllm.broadcast-wait" in report["findings"][0]["follows"]


# --- NCCL's lines, read together ------------------------------------------------------------------------------------

CAPTURED = pathlib.Path(__file__).parents[2] / "fixtures" / "nccl" / "real"
TRUTH = json.loads((CAPTURED / "truth.json").read_text(encoding="utf-8"))["cases"]


def captured(name: str, planned: bool = False) -> dict[str, t.Any]:
    nccl = Reader(transport.signatures())
    readings = signatures.read_path(str(CAPTURED / name), TABLE, nccl)
    made = signatures.explain(readings, TABLE, explained.traffic(nccl.finish(), planned))
    REPORT.validate(made["report"])
    return t.cast(dict[str, t.Any], made["report"] | {"table": made["table"]})


@pytest.mark.parametrize("name", [name for name, case in TRUTH.items() if case["verdict"] == "socket"])
def test_traffic_over_sockets_is_said_first_with_its_cause(name: str) -> None:
    first, *others = captured(name)["findings"]
    assert first["id"] == "nccl.traffic" and first["root"] and "sockets" in first["cause"]
    assert captured(name, planned=True)["findings"][0]["severity"] == "error"
    assert first["remedy"] and first["seen"][0]["first"] > 0
    assert not any(f["root"] for f in others if f["id"] in first["follows"])
    asked = {"NCCL_IB_DISABLE", "NCCL_NET", "NCCL_IB_HCA"} & TRUTH[name]["env"].keys()
    assert first["severity"] == ("error" if asked else "warning")


@pytest.mark.parametrize(
    ("name", "cause"),
    [("ib-disabled", "NCCL_IB_DISABLE switches RDMA off"), ("net-socket", "NCCL_NET=Socket asks for TCP")],
)
def test_what_switched_rdma_off_is_the_cause(name: str, cause: str) -> None:
    report = captured(name)
    assert cause in report["findings"][0]["cause"] and report["findings"][0]["severity"] == "error"
    assert "CAUSE 1 (error)" in "\n".join(report["table"]) and "CAUSE 2" not in "\n".join(report["table"])


@pytest.mark.parametrize("name", [name for name, case in TRUTH.items() if case["verdict"] == "p2p"])
def test_within_a_node_a_missing_device_is_harmless(name: str) -> None:
    report = captured(name)
    assert report["traffic"]["verdict"] == "p2p"
    assert all(f["benign"] for f in report["findings"] if f["id"].startswith("nccl.ib-"))


def test_a_job_killed_while_it_used_sockets_says_both() -> None:
    first, *others = captured("killed-2x2")["findings"]
    assert first["id"] == "nccl.traffic" and "sockets" in first["cause"]
    assert any(f["root"] and f["severity"] == "error" for f in others)


def test_logs_without_nccl_have_no_traffic() -> None:
    nccl = Reader(transport.signatures())
    readings = [signatures.read_text("[2026-05-26 13:30:05 TP0] Load weight begin.", TABLE, "log", nccl)]
    assert explained.traffic(nccl.finish()) is None
    assert signatures.explain(readings, TABLE, None)["report"]["traffic"] is None
