"""The controller's view of a node: the same verdict as the module's, from facts alone."""

from __future__ import annotations

import pathlib

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.dgxspark.cluster.plugins.filter.sriov_changes import FilterModule
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import persist
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Function, Netdev, Node, to_plain

sriov_changes = FilterModule().filters()["sriov_changes"]
ROLE = pathlib.Path(__file__).resolve().parents[4] / "roles" / "sriov_roce"

VF = {
    "index": 0,
    "purpose": "serving",
    "mac": "02:d6:00:01:00:00",
    "address": "10.100.0.1",
    "prefix": 24,
    "subnet": "10.100.0.0/24",
    "mtu": 9000,
}
FUNCTION = {
    "slot": "p0f0",
    "port": 0,
    "function": 0,
    "segment": "switch",
    "netdev": "enp1s0f0np0",
    "pci": "0000:01:00.0",
    "mtu": 9000,
    "vfs": [VF],
}


def test_a_bare_node() -> None:
    pf = Function("0000:01:00.0", netdev=Netdev("enp1s0f0np0", mtu=1500), totalvfs=8, numvfs=0)
    told = sriov_changes(to_plain(Node(functions=(pf,))), [FUNCTION])
    assert told["findings"] == []
    assert {"subject": "p0f0", "what": "VFs", "before": 0, "after": 1} in told["changes"]


def test_what_the_module_would_refuse_is_a_finding() -> None:
    told = sriov_changes(to_plain(Node()), [FUNCTION])
    assert [(finding["id"], finding["severity"]) for finding in told["findings"]] == [("sriov.missing", "error")]


def test_without_functions_there_is_nothing_to_do() -> None:
    assert sriov_changes(to_plain(Node()), []) == {"changes": [], "findings": []}


def test_a_wrong_shape_is_one_sentence_with_the_key() -> None:
    with pytest.raises(AnsibleFilterError, match=r"functions\[0\]: unknown key 'colour'"):
        sriov_changes(to_plain(Node()), [FUNCTION | {"colour": "red"}])


def test_the_role_asks_for_the_files_that_are_compared() -> None:
    variables = yaml.safe_load((ROLE / "vars" / "main.yml").read_text(encoding="utf-8"))
    assert tuple(variables["__sriov_roce_files"]) == persist.PATHS
    assert tuple(variables["__sriov_roce_units"]) == persist.UNITS
