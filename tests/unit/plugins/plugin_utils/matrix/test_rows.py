"""Shared rows contain none of the original names and addresses, and everything else."""

from __future__ import annotations

import re
import typing as t

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix import cases, rows
from ansible_collections.dgxspark.cluster.tests.unit import matrix_driven

Plain = dict[str, t.Any]
NAMES = ["spark1", "spark2", "spark10", "ctrl.home.example", "ctrl", "alice", "192.0.2.17", "2001:db8::5", "dgx-a_1"]
SAID = (
    "pod on {0}: RuntimeError at 10.100.3.1:50000 (peer {1}, aa:bb:cc:dd:ee:0f, fe80::1%eth0); 0.5.11 of {0}.lan at 12:30:05",
    "{1} lost",
    "see /home/{0}/log",
)


def row(text: str) -> Plain:
    """Return a row with this text in its note and in one setting."""
    case = cases.planned(matrix_driven.matrix(), matrix_driven.planner)[0]
    entry = {
        "outcome": "worker_restarted",
        "name": "x",
        "finished": "2026-11-24T10:00:00Z",
        "runs": [matrix_driven.report("good", 50.0, 0)],
        "line": text,
        "message": "",
        "platform": {"driver": "580.142", "kernel": "6.19.11-custom", "nccl": "2.29.7+cuda13.2"},
    }
    made = rows.row_of(case, entry, "mine")
    assert made is not None
    made["settings"]["chat_template"] = text
    return made


@given(st.sampled_from(SAID), st.permutations(NAMES))
def test_no_name_that_went_in_comes_out(said: str, names: list[str]) -> None:
    text = said.format(*names)
    (made,) = rows.shared([row(text)], names)
    shown = yaml.safe_dump(made, width=100000)
    for name in [*names, "10.100.3.1", "aa:bb:cc:dd:ee:0f", "fe80::1"]:
        assert not re.search(rf"(?<![A-Za-z0-9_-]){re.escape(name)}(?![A-Za-z0-9_-])", shown, re.IGNORECASE), name
    knowledge.validate("evidence", made, "shared")
    plain = row(text)
    assert {key: made[key] for key in ("measured", "engine", "platform", "model", "date", "verdict")} == {
        key: plain[key] for key in ("measured", "engine", "platform", "model", "date", "verdict")
    }


def test_ports_are_not_shared() -> None:
    text = "10.0.0.1:29517 [fe80::1]:30123 http://spark1:8123/v1 localhost:30009 tcp://mirror.example:5001 at 12:30:05, 4 x 8192:4096"
    (made,) = rows.shared([row(text)], ["spark1"])
    shown = made["settings"]["chat_template"]
    assert not re.search("29517|30123|8123|30009|5001", shown), shown
    assert shown.endswith(":port at 12:30:05, 4 x 8192:4096")


PRIVATE = (
    "registry.acme-lab.com:5000/team/engine:1",
    "harbor.acme-lab.internal/team/engine@sha256:" + "ab" * 32,
    "acme-lab:5000/team/engine:1",
    "gpu07.rack2.acme-lab.com lost its peer",
    "ssh bob@acme-lab: refused",
    "cannot read /srv/acme-lab/models/x",
    "cannot read /mnt/nas/acme-lab.bin, it is short",
)


@pytest.mark.parametrize("text", PRIVATE)
def test_an_owners_hosts_and_paths_are_not_shared_though_nobody_named_them(text: str) -> None:
    made = row(text)
    made["engine"]["image"] = text
    shown = yaml.safe_dump(rows.shared([made], []), width=100000)
    assert not re.search("acme-lab|bob@|5000|gpu07", shown), shown


def test_what_everybody_has_is_shared() -> None:
    text = (
        "nvcr.io/nvidia/sglang:25.10 lmsysorg/sglang:v0.5.11 sglang.srt.layers.moe /usr/local/lib/python3.12/site.py:12 "
        "meta-llama/Llama-3.1-8B torch.distributed config.json https://github.com/sgl-project/sglang flashinfer@sha256:"
        + "ab"
        * 32
    )
    (made,) = rows.shared([row(text)], [])
    assert made["settings"]["chat_template"] == text


def test_versions_and_times_are_no_addresses() -> None:
    text = "0.5.11, driver 580.142, 2.29.7, at 12:30:05, sha256:" + "ab" * 32
    (made,) = rows.shared([row(text)], ["spark1"])
    assert made["settings"]["chat_template"] == text


def test_a_name_in_a_key_is_refused() -> None:
    made = row("x")
    made["settings"]["alice"] = 1
    with pytest.raises(CollectionError, match="would still contain 'alice': nothing was written"):
        rows.shared([made], ["alice"])


def failing(ok: int, workload: str = "chat") -> Plain:
    """Return the row of a case where this many of 8 requests were answered at n=8 of one workload."""
    run = matrix_driven.report("good", 50.0, 0)
    level = matrix_driven.level(8, "failed", ok, 20.0, **{"tokens.refused": 8 - ok})
    if workload == "chat":
        run["workloads"][0]["levels"][2] = level
    else:
        run["workloads"].append({"name": workload, "levels": [level]})
    entry = {
        "outcome": "requests_failed",
        "name": "x",
        "finished": "2026-11-24T10:00:00Z",
        "runs": [run],
        "line": "",
        "message": "m",
    }
    made = rows.row_of(cases.planned(matrix_driven.matrix(), matrix_driven.planner)[0], entry, "mine")
    assert made is not None
    return made


@pytest.mark.parametrize(("workload", "where"), [("chat", "n=8"), ("long", "long, n=8")])
def test_a_level_without_any_answer_is_not_stable(workload: str, where: str) -> None:
    made = failing(0, workload)
    assert (made["verdict"], made["note"]) == ("crash", f"requests failed: m; {where}: not one request was answered")


def test_a_level_that_failed_in_part_is_named_and_speaks_against_the_row() -> None:
    made = failing(7)
    assert (made["verdict"], made["caveat"]) == ("stable", True)
    assert made["note"] == "requests failed: m; n=8: 1 of 8 requests failed"
