"""The text of netplan's file, and the devices in it."""

from __future__ import annotations

import pytest
import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError, to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.netplan_file import file_of
from ansible_collections.dgxspark.cluster.tests.unit.netplan_fakes import planned_host

PLANNED = to_plain(planned_host())


def test_the_text_says_whose_it_is_and_is_netplan_s_tree() -> None:
    made = file_of(PLANNED)
    assert made["content"].startswith("#")
    assert "dgxspark.cluster.netplan_vf" in made["content"]
    tree = yaml.safe_load(made["content"])
    assert tree["network"]["version"] == 2
    assert tree["network"]["ethernets"]["dgx-p0f0v0"]["match"]["macaddress"] == "02:d6:01:00:00:00"
    assert made["devices"][1] == {"name": None, "mac": "02:d6:01:00:00:00", "addresses": ["10.100.0.1/24"], "mtu": 9000}


def test_networkmanager_is_named_in_each_stanza_and_never_for_the_file() -> None:
    network = yaml.safe_load(file_of(PLANNED, "NetworkManager")["content"])["network"]
    assert "renderer" not in network
    assert {stanza["renderer"] for stanza in network["ethernets"].values()} == {"NetworkManager"}


def test_the_same_plan_gives_the_same_text() -> None:
    assert file_of(PLANNED) == file_of(to_plain(planned_host()))


def test_a_bad_plan_is_one_error() -> None:
    with pytest.raises(CollectionError, match="functions"):
        file_of({"name": "spark1", "index": 1, "detected": True})
