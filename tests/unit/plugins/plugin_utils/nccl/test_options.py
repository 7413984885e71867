"""The options of a host's environment, from an owner's variables and the host's facts."""

from __future__ import annotations

import copy
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.nccl.options import management, options_of, seen
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs

Plain = dict[str, t.Any]
DOCKER, LAN = (
    {"name": "docker0", "ipv4": ["172.17.0.1/16"]},
    {"name": "enP7s7", "ipv4": ["10.0.0.7/24", "192.0.2.1/24"]},
)


def options(
    attachment: str = "host", gids: list[Plain] | None = None, topology: str = "switch", **more: t.Any
) -> Plain:
    given: Plain = {
        "inventory_hostname": "spark1",
        "ansible_host": "192.0.2.1",
        "dgxspark_plan": {"topology": topology},
        "dgxspark_roce": {"other": [DOCKER, LAN]},
        "nccl_transport": "roce",
        **more,
    }
    return options_of(given.get, attachment, gids)


def test_what_is_null_is_left_to_nccl_and_the_vf() -> None:
    made = options()
    assert (made.pop("attachment"), made.pop("transport")) == ("host", "roce")
    assert set(made.values()) == {None}


def test_what_the_command_line_gives_as_text_is_a_number_and_a_truth() -> None:
    made = options(nccl_vf_index="0", nccl_gid_index="3", nccl_merge_nics="no", gids=[{"index": 3}])
    assert (made["vf_index"], made["gid_index"], made["merge_nics"]) == (0, 3, False)
    assert made["gids"] == {"spark1": [{"index": 3}]}
    with pytest.raises(CollectionError, match="nccl_vf_index: 'first' is not a number"):
        options(nccl_vf_index="first")


def test_what_was_read_proves_nothing_where_no_index_is_pinned() -> None:
    assert options(gids=[{"index": 3}])["gids"] is None
    assert options(nccl_gid_index=3)["gids"] is None


@pytest.mark.parametrize(
    ("topology", "attachment", "chosen", "used"),
    [
        ("switch", "host", None, None),
        ("ring", "host", None, "enP7s7"),
        ("triangle", "vf", None, "eth0"),
        ("triangle", "vf", "bond0", "bond0"),
        ("direct", "host", "bond0", "bond0"),
    ],
)
def test_only_where_no_vf_reaches_all_another_interface_starts_up(
    topology: str, attachment: str, chosen: str | None, used: str | None
) -> None:
    assert options(attachment, topology=topology, nccl_bootstrap=chosen)["bootstrap"] == used


@pytest.mark.parametrize(
    ("other", "address", "found"),
    [
        ([DOCKER, LAN], "192.0.2.1", "enP7s7"),
        ([DOCKER, LAN], "192.0.2", None),
        ([DOCKER, LAN], "spark1.example", None),
        ([DOCKER, LAN], "", None),
        ([LAN], "spark1.example", "enP7s7"),
        ([], "192.0.2.1", None),
    ],
)
def test_the_management_network_is_known_by_the_address_or_by_being_the_only_one(
    other: list[Plain], address: str, found: str | None
) -> None:
    assert management(other, address) == found


def test_a_vf_without_a_name_was_not_seen() -> None:
    planned = copy.deepcopy(kube_inputs.fabric(2)["spark1"])
    assert seen(planned)
    planned["functions"][0]["vfs"][1]["hca"] = None
    assert not seen(planned)
