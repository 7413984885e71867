"""What the controller adds to the verdict: known bad versions, the owner's signatures, the text of a refusal."""

from __future__ import annotations

import pathlib

from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Evidence, Reader
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl import transport
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.verdict import Expected
from ansible_collections.dgxspark.cluster.tests.unit import nccl_logs as made

NVLS = "nccl.known-bad.nccl-2.30.4-nvls"


def evidence(logs: list[list[str]], overlays: tuple[str, ...] = ()) -> Evidence:
    reader = Reader(transport.signatures(overlays))
    for number, lines in enumerate(logs):
        reader.read(f"log {number}", lines)
    return reader.finish()


def ids(logs: list[list[str]]) -> list[str]:
    return [finding["id"] for finding in transport.report(evidence(logs), Expected(2))["findings"]]


def test_a_version_known_to_hang_is_a_cause_unless_it_is_worked_around() -> None:
    assert ids(made.build(made.Job("2.30.4"))) == [NVLS]
    assert ids(made.build(made.Job("2.30.4", settings=(("NCCL_NVLS_ENABLE", "0"),)))) == []
    assert ids(made.build(made.Job("2.30.3"))) == []


def test_it_comes_first_where_all_hangs() -> None:
    hang = made.bad()["nvls-hang-2.30.4"].logs
    assert ids(hang)[0] == NVLS
    assert "nccl.stalled" in ids(hang)


def test_an_owner_adds_a_signature(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "signatures"
    folder.mkdir()
    (folder / "own.yml").write_text(
        "id: nccl.own\ncomponent: nccl\npattern: 'flux capacitor (?P<n>\\d+) empty'\n"
        "example: flux capacitor 3 empty\norigin: real\nseverity: error\nbenign: false\nfatal: true\n"
        "cause: Capacitor {n} is empty.\nremedy: Fill it.\nsource: [ours]\nverified: measured\n"
    )
    logs = made.build(made.Job())
    logs[0].append(f"{logs[0][0].split('NCCL INFO')[0]}x.cc:1 NCCL WARN flux capacitor 3 empty")
    overlays = (str(tmp_path),)
    report = transport.report(evidence(logs, overlays), Expected(2), overlays)
    assert report["verdict"] == "failed"
    assert report["findings"][0]["message"] == "Capacitor 3 is empty."
    assert report["findings"][0]["line"] == "flux capacitor 3 empty"
    assert report["findings"][0]["subject"].startswith("rank 0 (spark1:")


def test_the_refusal_names_cause_remedy_and_id() -> None:
    made_report = transport.report(evidence(made.bad()["hca-is-netdev-2.28.9"].logs), Expected(2))
    words = transport.refusal(made_report, "ib")
    assert words is not None
    assert "enp1s0f0np0" in words and "/sys/class/infiniband" in words and "[nccl.hca-is-netdev]" in words
    assert transport.refusal(made_report, "socket") is None
