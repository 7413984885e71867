# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names, ports and folders of a lab."""

from __future__ import annotations

from pathlib import Path

import pytest
from labkit import config
from labkit.errors import LabError


def test_the_defaults_are_those_that_the_inventory_counts_on() -> None:
    lab = config.load({"HOME": "/home/me"}, 1000)
    assert lab.port(1) == 22201
    assert lab.key == Path("/home/me/.cache/dgxspark-lab/id_lab")
    assert lab.known_hosts == Path("/home/me/.cache/dgxspark-lab/known_hosts")


def test_two_labs_share_nothing_but_the_cache() -> None:
    one = config.load({"HOME": "/h", "DGXSPARK_LAB_NAME": "one", "DGXSPARK_LAB_PORT": "23000"}, 0)
    two = config.load({"HOME": "/h", "DGXSPARK_LAB_NAME": "two", "DGXSPARK_LAB_PORT": "24000"}, 0)
    assert one.run != two.run
    assert one.cache == two.cache
    assert not {one.port(n) for n in range(9)} & {two.port(n) for n in range(9)}


def test_the_longest_name_still_leaves_room_for_a_unix_socket() -> None:
    lab = config.load({"HOME": "/h", "DGXSPARK_LAB_NAME": "x" * 30}, 4294967294)
    assert len(f"{lab.run}/spark8/qmp") <= 107


@pytest.mark.parametrize("name", ["../etc", "a b", "A", "x" * 31, "-x", "a,b", "a/b"])
def test_a_name_that_could_leave_the_folder_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="DGXSPARK_LAB_NAME"):
        config.load({"DGXSPARK_LAB_NAME": name}, 0)


@pytest.mark.parametrize("port", ["0", "80", "65535", "-5", "22200.5", "x", "²²²²²"])
def test_a_port_that_cannot_be_is_refused(port: str) -> None:
    with pytest.raises(LabError, match="DGXSPARK_LAB_PORT"):
        config.load({"DGXSPARK_LAB_PORT": port}, 0)


@pytest.mark.parametrize("memory", ["0", "255", "65537", "-5", "1G", "²²²²"])
def test_an_amount_of_memory_that_cannot_be_is_refused(memory: str) -> None:
    with pytest.raises(LabError, match="DGXSPARK_LAB_MEMORY"):
        config.load({"DGXSPARK_LAB_MEMORY": memory}, 0)
    assert config.load({"DGXSPARK_LAB_MEMORY": "2048"}, 0).memory_mib == 2048


@pytest.mark.parametrize("cpus", ["0", "9", "-1", "two", "²"])
def test_a_number_of_cpus_that_cannot_be_is_refused(cpus: str) -> None:
    with pytest.raises(LabError, match="DGXSPARK_LAB_CPUS"):
        config.load({"DGXSPARK_LAB_CPUS": cpus}, 0)
    assert config.load({}, 0).cpus == 1


def test_a_guest_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="DGXSPARK_LAB_GUEST"):
        config.load({"DGXSPARK_LAB_GUEST": str(tmp_path / "none")}, 0)


def test_nodes_have_networkd_unless_networkmanager_is_asked_for(tmp_path: Path) -> None:
    assert config.load({}, 0).guest is None
    guest = config.load({"DGXSPARK_LAB_RENDERER": "networkmanager"}, 0).guest
    assert guest and "network-manager" in (guest / "packages.txt").read_text(encoding="utf-8").split()
    for wrong in ({"DGXSPARK_LAB_RENDERER": "NetworkManager"}, {"DGXSPARK_LAB_GUEST": str(tmp_path)}):
        with pytest.raises(LabError, match="DGXSPARK_LAB_RENDERER"):
            config.load({"DGXSPARK_LAB_RENDERER": "networkmanager", **wrong}, 0)


def test_nodes_boot_the_kernel_that_qemu_is_given_unless_grub_is_asked_for(tmp_path: Path) -> None:
    assert not config.load({}, 0).grub
    lab = config.load({"DGXSPARK_LAB_BOOT": "grub"}, 0)
    assert lab.grub and lab.guest
    assert "grub2-common" in (lab.guest / "packages.txt").read_text(encoding="utf-8").split()
    for wrong in (
        {"DGXSPARK_LAB_BOOT": "uefi"},
        {"DGXSPARK_LAB_GUEST": str(tmp_path)},
        {"DGXSPARK_LAB_RENDERER": "networkmanager"},
    ):
        with pytest.raises(LabError, match="DGXSPARK_LAB_BOOT"):
            config.load({"DGXSPARK_LAB_BOOT": "grub", **wrong}, 0)


@pytest.mark.parametrize(("text", "number"), [("1", 1), ("spark8", 8)])
def test_a_node_is_named_by_number_or_by_name(text: str, number: int) -> None:
    assert config.node_number(text) == number


@pytest.mark.parametrize("text", ["0", "9", "spark0", "spark", "node1", "", "sparkspark1", "١"])
def test_other_nodes_do_not_exist(text: str) -> None:
    with pytest.raises(LabError, match="not a node"):
        config.node_number(text)


@pytest.mark.parametrize(
    ("text", "index"), [("1", 0), ("enp1s0f0np0", 0), ("rocep1s0f0", 0), ("2", 1), ("enP2p1s0f0np0", 1)]
)
def test_a_function_is_named_by_number_interface_or_hca(text: str, index: int) -> None:
    assert config.function_index(text) == index


def test_an_unknown_function_is_refused_with_those_that_exist() -> None:
    with pytest.raises(LabError, match="enP2p1s0f0np0"):
        config.function_index("eth0")


def test_every_function_of_every_node_has_its_own_local_address() -> None:
    macs = {config.card_mac(node, function) for node in range(1, 9) for function in range(2)}
    assert len(macs) == 16
    assert all(int(mac[:2], 16) & 3 == 2 for mac in macs), "locally administered, not a group"
    assert config.card_mac(3, 1) == "06:00:00:00:03:02", "the guest reads its number from the fifth byte"
    replaced = {config.card_mac(node, function, 1) for node in range(1, 9) for function in range(2)}
    assert not macs & replaced, "another machine in a node's place"
    assert config.card_mac(3, 1, 1)[12:14] == "03"


def test_a_cable_joins_two_functions() -> None:
    assert config.cable("spark1:2=3:enp1s0f0np0") == ["1.2", "3.1"]


@pytest.mark.parametrize("text", ["spark1:2", "spark1:2=spark2", "spark1:2=spark2:1=spark3:1", "spark1=spark2"])
def test_what_is_no_cable_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(LabError, match="spark1:2=spark2:1"):
        config.cable(text)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("well", {}),
        ("mtu=1500", {"mtu": 1500}),
        ("delay=40 reorder=25 loss=0.5", {"delay": 40, "reorder": 25, "loss": 0.5}),
    ],
)
def test_a_port_has_the_faults_that_are_named(words: str, fault: dict[str, float]) -> None:
    assert config.port_fault(words.split()) == fault


@pytest.mark.parametrize(
    "words", ["", "mtu", "mtu=", "mtu=67", "loss=101", "loss=-1", "loss=²", "jitter=1", "well loss=1", "loss=1 loss=2"]
)
def test_what_is_no_fault_of_a_port_is_refused(words: str) -> None:
    with pytest.raises(LabError):
        config.port_fault(words.split() or [""])


def test_reordering_needs_a_delay_to_overtake() -> None:
    with pytest.raises(LabError, match="delay"):
        config.port_fault(["reorder=5"])
