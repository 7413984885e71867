"""The filter fabric_netplan."""

from __future__ import annotations

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.dgxspark.cluster.plugins.filter.fabric_netplan import FilterModule as Netplan
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import to_plain
from ansible_collections.dgxspark.cluster.tests.unit.netplan_fakes import planned_host

fabric_netplan = Netplan().filters()["fabric_netplan"]
PLANNED = to_plain(planned_host())


def test_the_text_says_whose_it_is_and_is_netplan_s_tree() -> None:
    made = fabric_netplan(PLANNED)
    assert made["content"].startswith("#")
    assert "dgxspark.cluster.netplan_vf" in made["content"]
    tree = yaml.safe_load(made["content"])
    assert tree["network"]["version"] == 2
    assert tree["network"]["ethernets"]["dgx-p0f0v0"]["match"]["macaddress"] == "02:d6:01:00:00:00"
    assert made["devices"][1] == {"name": None, "mac": "02:d6:01:00:00:00", "addresses": ["10.100.0.1/24"], "mtu": 9000}


def test_networkmanager_is_named_in_each_stanza_and_never_for_the_file() -> None:
    network = yaml.safe_load(fabric_netplan(PLANNED, "NetworkManager")["content"])["network"]
    assert "renderer" not in network
    assert {stanza["renderer"] for stanza in network["ethernets"].values()} == {"NetworkManager"}


def test_the_same_plan_gives_the_same_text() -> None:
    assert fabric_netplan(PLANNED) == fabric_netplan(to_plain(planned_host()))


def test_a_bad_plan_is_one_error() -> None:
    with pytest.raises(AnsibleFilterError, match="functions"):
        fabric_netplan({"name": "spark1", "index": 1, "detected": True})
