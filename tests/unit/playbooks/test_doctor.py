"""doctor.yml as it is run, as far as it goes without Sparks: verdict, report file, exit status, and who is down."""

from __future__ import annotations

import base64
import contextlib
import json
import pathlib
import shutil
import socket

import pytest

from ansible_collections.dgxspark.cluster.tests.unit.owner import DOWN, HERE, NO_ANSIBLE, Owner, can_run
from ansible_collections.dgxspark.cluster.tests.unit.tls import speaks_tls
from ansible_collections.dgxspark.cluster.tests.unit.verify_inputs import Cluster

pytestmark = pytest.mark.skipif(not can_run(), reason=NO_ANSIBLE)


@pytest.fixture
def owner(tmp_path: pathlib.Path) -> Owner:
    made = Owner(tmp_path)
    made.tool("journalctl", "2026-11-20T10:00:00 spark1 kernel: all is well\n")
    return made


@pytest.mark.more
def test_a_single_node_that_is_well_ends_with_exit_status_0_in_check_mode_too(owner: Owner) -> None:
    for mode in ((), ("--check",)):
        code, output, report = owner.doctor({"spark1": HERE}, *mode, topology="single")
        assert code == 0, output
        assert report["verdict"] == "well", report
        assert report["hosts"][0]["versions"]["kernel"]
        assert report["hosts"][0]["journals"][0] == {"name": "kernel, this boot", "lines": 1, "error": None}
        assert "WELL: nothing wrong was seen on 1 host of 1" in output
        assert "changed=0" in output


@pytest.mark.more
def test_a_kubeconfig_at_the_default_path_is_anothers_where_the_inventory_has_no_k3s(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, certificate = owner.folder / "home", owner.folder / "ends-soon.pem"
    speaks_tls(certificate)
    user = {"client-certificate-data": base64.b64encode(certificate.read_bytes()).decode()}
    (home / ".kube").mkdir(parents=True)
    (home / ".kube/dgxspark.yml").write_text(json.dumps({"users": [{"user": user}]}), encoding="utf-8")
    monkeypatch.setenv("HOME", str(home))
    for chosen, told in (
        ((), []),
        (("-e", "k8s_dgx_kubeconfig=~/.kube/dgxspark.yml"), ["the controller's kubeconfig"]),
    ):
        _code, _output, report = owner.doctor({"spark1": HERE}, *chosen, topology="single")
        assert [each["where"] for each in report["findings"] if each["id"].startswith("certificate.")] == told


@pytest.mark.more
def test_what_the_journal_says_is_explained_and_an_error_ends_otherwise(owner: Owner) -> None:
    owner.tool(
        "journalctl", "x kernel: Out of memory: Killed process 4242 (python3) hf_0123456789abcdefgh total-vm:1kB\n"
    )
    code, output, report = owner.doctor({"spark1": HERE}, topology="single")
    assert code not in (0, 250), output
    (finding,) = report["findings"]
    assert (finding["severity"], finding["id"], finding["where"]) == ("error", "kernel.oom-kill", "spark1")
    assert "cause: The node ran out of memory" in output and "remedy: Plan the model again" in output
    assert "hf_0123" not in output + json.dumps(report)


@pytest.mark.more
@pytest.mark.older_core
def test_nodes_that_are_down_are_findings_beside_those_of_the_others(owner: Owner) -> None:
    """This machine has no fabric: the plan refuses its facts, and the doctor goes on to report that."""
    code, output, report = owner.doctor({"spark1": HERE, "spark2": DOWN}, topology="switch")
    assert code not in (0, 250), output
    assert {finding["id"] for finding in report["findings"] if finding["severity"] == "error"} == {
        "node.no-ssh",
        "function.missing",
    }
    down = next(finding for finding in report["findings"] if finding["id"] == "node.no-ssh")
    assert down["where"] == "spark2" and "127.0.0.1" in down["symptom"]
    assert [host["status"] for host in report["hosts"]] == ["seen", "not seen"]
    assert output.count(report["headline"]) == 1
    assert "UNREACHABLE" in output


@pytest.mark.more
def test_each_way_in_which_a_node_is_not_reached_has_its_own_remedy(owner: Owner) -> None:
    """By the real ssh, but for the login, which wants a server: a stand-in says there what OpenSSH's says."""
    with socket.socket() as full, socket.socket() as silent, contextlib.ExitStack() as waiting:
        for listening, length in ((full, 0), (silent, 8)):
            listening.bind(("127.0.0.1", 0))
            listening.listen(length)
        for _each in range(3):  # so nobody else gets into its queue
            taken = waiting.enter_context(socket.socket())
            taken.setblocking(False)
            taken.connect_ex(full.getsockname())
        denied = "me@192.0.2.4: Permission denied (publickey)."
        ssh = owner.tools / "ssh"
        ssh.write_text(
            f'#!/bin/sh\ncase "$*" in *192.0.2.4*) echo \'{denied}\' >&2; exit 255;; esac\nexec {shutil.which("ssh")} "$@"\n'
        )
        ssh.chmod(0o755)
        quick = {"ansible_ssh_common_args": "-o ConnectTimeout=2"}
        hosts = {
            "name": {"ansible_host": "no-such-node.invalid"},
            "refused": {"ansible_host": "127.0.0.1", "ansible_port": 1},
            "login": {"ansible_host": "192.0.2.4"},
            "off": {"ansible_host": "127.0.0.1", "ansible_port": full.getsockname()[1]},
            "hangs": {"ansible_host": "127.0.0.1", "ansible_port": silent.getsockname()[1]},
        }
        code, output, report = owner.doctor({name: own | quick for name, own in hosts.items()}, topology="switch")
    assert code not in (0, 250), output
    told = {finding["where"]: finding for finding in report["findings"] if finding["id"].startswith("node.")}
    assert {name: finding["id"] for name, finding in told.items()} == {
        "name": "node.name",
        "refused": "node.no-ssh",
        "login": "node.login",
        "off": "node.down",
        "hangs": "node.hangs",
    }
    assert len({finding["remedy"] for finding in told.values()}) == len(hosts)
    assert {name for name, finding in told.items() if "power" in finding["remedy"]} == {"off", "hangs"}
    assert "Could not resolve hostname no-such-node.invalid" in told["name"]["symptom"]


@pytest.mark.more
def test_a_node_that_answers_and_cannot_be_read_is_not_down(owner: Owner) -> None:
    owner.tool("ip", "no JSON\n")
    code, output, report = owner.doctor({"spark1": HERE}, topology="single")
    assert code not in (0, 250), output
    (finding,) = (f for f in report["findings"] if f["where"] == "spark1")
    assert finding["id"] == "node.refused" and "iproute2" in finding["symptom"]
    assert "power" not in finding["remedy"]


def test_a_fabric_that_drifted_on_one_of_two_nodes(owner: Owner) -> None:
    """The facts are given (as `roce_info` returns them); the nodes' health is read from this machine."""
    cluster = Cluster(2)
    for host in cluster.hosts.values():
        for function in host["facts"]["functions"]:
            function |= {"pci": {"0000:01:00.0": "0000:01:00.0", "0002:01:00.0": "0000:02:00.0"}[function["pci"]]}
    cluster.vf("spark2", 0, 1)["place"] = {"state": "stranded", "netns": "/run/netns/cni-1"}
    hosts = {name: HERE | {"dgxspark_roce": seen["facts"]} for name, seen in cluster.hosts.items()}
    code, output, report = owner.doctor(hosts, topology="switch")
    assert code not in (0, 250), output
    stranded = next(finding for finding in report["findings"] if finding["id"] == "vf.stranded")
    assert stranded["where"] == "spark2 p0f0v1" and "sriov_roce_reset_stranded" in stranded["remedy"]
    assert "force-deleted" in stranded["cause"]


@pytest.mark.more
def test_the_limit_guard_holds_here_too(owner: Owner) -> None:
    code, output, report = owner.doctor({"spark1": HERE}, "-l", "localhost", topology="single")
    assert code != 0
    assert report is None, output
