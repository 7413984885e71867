"""What known lines of the ranks' logs become in the report: causes with remedies, confirmed only by the transport log."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Reader
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge, signatures
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.html_report.page import page
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import transport as nccl_transport
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.verdict import Expected
from ansible_collections.dgxspark.cluster.tests.support.beyond_fabric import ALL, judge, nccl
from ansible_collections.dgxspark.cluster.tests.unit import nccl_logs
from ansible_collections.dgxspark.cluster.tests.unit.verify_inputs import Cluster, Plain

TABLE = signatures.load_table()
KNOWN = knowledge.load("signatures")
OOM = "x kernel: Out of memory: Killed process 4242 (python3) hf_0123456789abcdefgh total-vm:1kB"
HARMLESS = next(entry for entry in KNOWN.values() if entry["benign"])


def readings(*lines: str, name: str = "spark2") -> list[Plain]:
    return t.cast(list[Plain], to_plain(signatures.read_all([(name, "\n".join(lines))], TABLE)))


def shown_page(report: Plain) -> str:
    return page(report | {"versions": {"collection": "0.1.0"}})


def judged(name: str = "nccl", **more: t.Any) -> Plain:
    return judge(Cluster(4), **ALL | {name: nccl(**more)})


def test_a_known_line_is_told_with_cause_remedy_source_and_place() -> None:
    report = judged("pod", readings=readings("all is well", OOM, name="pod serve-default-rank1-0"))
    (found,) = report["log_findings"]
    entry = KNOWN["kernel.oom-kill"]
    assert (found["step"], found["id"], found["severity"]) == ("pod", "kernel.oom-kill", entry["severity"])
    assert (found["remedy"], found["source"]) == (entry["remedy"], entry["source"])
    assert found["seen"][0]["log"] == "pod serve-default-rank1-0" and found["seen"][0]["first"] == 2
    assert "LOG OF pod (error, suspected)" in "\n".join(report["table"])
    shown = shown_page(report)
    assert "kernel.oom-kill" in shown and "suspected" in shown
    assert "hf_0123" not in str(report) + shown


def test_a_known_line_explains_and_never_decides() -> None:
    assert judged(readings=readings(OOM))["verdict"] == "passed"
    assert judged(readings=[])["log_findings"] == []


def test_a_line_of_a_step_that_could_not_be_run_is_told_too() -> None:
    done = {"reason": "the logs hold nothing of NCCL", "readings": readings(OOM)}
    report = judge(Cluster(4), **ALL | {"pod": done})
    assert report["verdict"] == "incomplete"
    assert [found["id"] for found in report["log_findings"]] == ["kernel.oom-kill"]


def test_what_is_harmless_is_said_to_be_so() -> None:
    report = judged(readings=readings(HARMLESS["example"]))
    found = next(found for found in report["log_findings"] if found["id"] == HARMLESS["id"])
    assert (found["benign"], found["suspected"]) == (True, False)
    assert "LOG OF" not in "\n".join(report["table"])
    assert "look alarming and are harmless" in shown_page(report)


FAILED = [
    (name, case.logs)
    for name, case in sorted(nccl_logs.bad().items())
    if any(pattern.expression.search(line) for pattern in TABLE.patterns for lines in case.logs for line in lines)
]


@pytest.mark.parametrize(("name", "logs"), FAILED, ids=[name for name, _logs in FAILED])
def test_only_what_the_transport_log_names_for_its_verdict_is_confirmed(name: str, logs: nccl_logs.Logs) -> None:
    reader = Reader(nccl_transport.signatures())
    texts = [(f"spark{number}", "\n".join(lines)) for number, lines in enumerate(logs, 1)]
    for source, text in texts:
        reader.read(source, text.splitlines())
    told = nccl_transport.report(reader.finish(), Expected(len(logs)))
    read = to_plain(signatures.read_all(texts, TABLE))
    names = {finding["id"] for finding in told["findings"]}
    for found in judged(runs=[], transport=told, readings=read)["log_findings"]:
        sure = told["verdict"] in ("socket", "mixed", "failed") and found["id"] in names
        assert found["suspected"] is (not sure and not found["benign"])
    alone = judged(runs=[], transport={"verdict": "unknown"}, readings=read)["log_findings"]
    assert alone
    assert all(found["suspected"] or found["benign"] for found in alone)


def test_a_reading_of_a_wrong_form_is_one_clear_error() -> None:
    with pytest.raises(CollectionError, match=r"nccl\.readings"):
        judged(readings="no list")
