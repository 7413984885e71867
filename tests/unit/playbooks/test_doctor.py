"""doctor.yml as it is run, as far as it goes without Sparks: verdict, report file, exit status, and who is down."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import jsonschema
import pytest
import yaml

from ansible_collections.dgxspark.cluster.tests.unit.gates import Cluster

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(sys.executable).parent
SCHEMA = json.loads((ROOT / "docs" / "schema" / "doctor-report.json").read_text(encoding="utf-8"))
HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
DOWN = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_ssh_common_args": "-o ConnectTimeout=2"}

pytestmark = pytest.mark.skipif(not (BIN / "ansible-playbook").exists(), reason="ansible-playbook is not beside Python")


class Owner:
    """An owner's folder with an inventory, from which the playbook is run. `tools` holds stand-ins for node commands."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.tools = folder / "tools"
        self.tools.mkdir()
        collection = folder / "collections" / "ansible_collections" / "dgxspark"
        collection.mkdir(parents=True)
        (collection / "cluster").symlink_to(ROOT)
        (folder / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")

    def tool(self, name: str, output: str) -> None:
        program = self.tools / name
        (self.tools / f"{name}.out").write_text(output, encoding="utf-8")
        program.write_text(f"#!/bin/sh\ncat {self.tools}/{name}.out\n", encoding="utf-8")
        program.chmod(0o755)

    def doctor(self, hosts: dict[str, dict[str, Any]], *arguments: str, **fabric: Any) -> tuple[int, str, Any]:
        """Return exit status, output and report (None where there is none)."""
        variables = {"dgxspark_fabric": {"hardware": "lab", "vf_count": 2, **fabric}}
        inventory = {"all": {"children": {"dgx": {"hosts": hosts, "vars": variables}}}}
        (self.folder / "inventory.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
        done = subprocess.run(
            [str(BIN / "ansible-playbook"), "-i", "inventory.yml", str(ROOT / "playbooks" / "doctor.yml"), *arguments],
            cwd=self.folder,
            check=False,
            capture_output=True,
            text=True,
            timeout=900,
            env={
                **os.environ,
                "PATH": f"{self.tools}{os.pathsep}{os.environ['PATH']}",
                "PWD": str(self.folder),
                "ANSIBLE_COLLECTIONS_PATH": str(self.folder / "collections"),
                "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"),
                "ANSIBLE_NOCOLOR": "1",
            },
        )
        reports = sorted((self.folder / "reports").glob("doctor-*.json"))
        report = json.loads(reports[-1].read_text(encoding="utf-8")) if reports else None
        output = " ".join((done.stdout + done.stderr).split())
        assert "Traceback" not in output
        if report is not None:
            jsonschema.validate(report, SCHEMA)
        return done.returncode, output, report


@pytest.fixture
def owner(tmp_path: pathlib.Path) -> Owner:
    made = Owner(tmp_path)
    made.tool("journalctl", "2026-11-20T10:00:00 spark1 kernel: all is well\n")
    return made


def test_a_single_node_that_is_well_ends_with_exit_status_0_in_check_mode_too(owner: Owner) -> None:
    for mode in ((), ("--check",)):
        code, output, report = owner.doctor({"spark1": HERE}, *mode, topology="single")
        assert code == 0, output
        assert report["verdict"] == "well", report
        assert report["hosts"][0]["versions"]["kernel"]
        assert report["hosts"][0]["journals"][0] == {"name": "kernel, this boot", "lines": 1, "error": None}
        assert "WELL: nothing wrong was seen on 1 host of 1" in output
        assert "changed=0" in output


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


def test_nodes_that_are_down_are_findings_beside_those_of_the_others(owner: Owner) -> None:
    """This machine has no fabric: the plan refuses what it shows, and the doctor goes on to say so."""
    code, output, report = owner.doctor({"spark1": HERE, "spark2": DOWN}, topology="switch")
    assert code not in (0, 250), output
    assert {finding["id"] for finding in report["findings"] if finding["severity"] == "error"} == {
        "node.down",
        "function.missing",
    }
    down = next(finding for finding in report["findings"] if finding["id"] == "node.down")
    assert down["where"] == "spark2" and "127.0.0.1" in down["symptom"]
    assert [host["status"] for host in report["hosts"]] == ["seen", "not seen"]
    assert "UNREACHABLE" in output


def test_a_fabric_that_drifted_on_one_of_two_nodes(owner: Owner) -> None:
    """The facts are given (as `roce_info` returns them); how the nodes are doing is read of this machine."""
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
    assert "deleted by force" in stranded["cause"]


def test_the_limit_guard_holds_here_too(owner: Owner) -> None:
    code, output, report = owner.doctor({"spark1": HERE}, "-l", "localhost", topology="single")
    assert code != 0
    assert report is None, output
