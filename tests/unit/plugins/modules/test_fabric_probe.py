"""The module fabric_probe: arguments in, answers out, one clear sentence where it cannot send."""

from __future__ import annotations

import json
import os
import typing as t

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.dgxspark.cluster.plugins.modules import fabric_probe

Plain = dict[str, t.Any]


def run(capfd: pytest.CaptureFixture[str], **arguments: t.Any) -> Plain:
    with patch_module_args(arguments), pytest.raises(SystemExit):
        fabric_probe.main()
    return t.cast(Plain, json.loads(capfd.readouterr().out))


def test_without_targets_it_says_which_programs_there_are(capfd: pytest.CaptureFixture[str]) -> None:
    answer = run(capfd)
    assert (answer["changed"], answer["arp"], answer["ping"], answer["rdma"]) == (False, [], [], [])
    assert set(answer["programs"]) == {"ib_write_bw", "ib_send_lat", "ibv_rc_pingpong"}


@pytest.mark.skipif(os.geteuid() != 0, reason="raw sockets need root")
def test_it_pings_and_asks_in_check_mode_too(capfd: pytest.CaptureFixture[str]) -> None:
    where = {"netdev": "lo", "source": "127.0.0.1", "address": "127.0.0.2"}
    answer = run(capfd, ping=[{**where, "mtu": 9000}], arp=[where], arp_window=0.1, _ansible_check_mode=True)
    (ping,) = answer["ping"]
    assert (ping["small"], ping["large"]) == ("ok", "ok")
    # loopback has no ARP: there is no answer, which is not an error
    assert answer["arp"] == [{"netdev": "lo", "address": "127.0.0.2", "macs": [], "error": None}]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up being root")
def test_without_root_it_says_what_to_do(capfd: pytest.CaptureFixture[str]) -> None:
    os.seteuid(65534)
    try:
        answer = run(capfd, arp=[{"netdev": "lo", "source": "127.0.0.1", "address": "127.0.0.2"}], arp_window=0.1)
    finally:
        os.seteuid(0)
    assert answer["failed"]
    assert "Run this task as root (become: true)" in answer["msg"]


def test_a_peer_that_never_comes_is_an_answer_not_a_failure(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: t.Any
) -> None:
    (tmp_path / "ib_write_bw").write_text("#!/bin/sh\n")
    (tmp_path / "ib_write_bw").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    test = {
        "id": "write/a>b",
        "role": "client",
        "program": "ib_write_bw",
        "hca": "rocep1s0f0v0",
        "gid_index": 3,
        "address": "127.0.0.1",
        "peer": "127.0.0.3",
        "port": 18650,
        "size": 64,
    }
    answer = run(capfd, rdma=[test], meet_timeout=0.3)
    assert "failed" not in answer
    (rdma,) = answer["rdma"]
    assert (rdma["id"], rdma["role"], rdma["status"]) == ("write/a>b", "client", "no peer")
    assert "127.0.0.3 on TCP port 18650" in rdma["message"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"ping": [{"netdev": "lo", "source": "127.0.0.1", "address": "127.0.0.2"}]}, "mtu"),
        ({"rdma": [{"id": "x"}]}, "gid_index"),
        ({"arps": []}, "arps"),
    ],
)
def test_wrong_arguments_are_refused_by_name(capfd: pytest.CaptureFixture[str], arguments: Plain, words: str) -> None:
    answer = run(capfd, **arguments)
    assert answer["failed"]
    assert words in answer["msg"]
