"""Over a hundred wrong inventories from named mutators: each is refused with one message that names the mutated key.

All go through Ansible's own inventory loading and templating and the role's own expression; some through ansible-playbook.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Netdev, to_plain
from ansible_collections.dgxspark.cluster.tests.support.inventories import FIRST, SECOND, UNSET, Inventory, seen
from ansible_collections.dgxspark.cluster.tests.support.playbooks import collections_path
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import names
from ansible_collections.dgxspark.cluster.tests.unit.owner import PROGRAM, ROOT

Case = tuple[str, Inventory, tuple[str, ...]]
CASES: list[Case] = []
Mutator = t.Callable[..., t.Iterator[tuple[str, Inventory, tuple[str, ...]]]]


def mutator(function: t.Callable[[], t.Iterator[Case]]) -> t.Callable[[], t.Iterator[Case]]:
    """Add the cases of a mutator to the list, under its name."""
    CASES.extend((f"{function.__name__}-{name}", inventory, needles) for name, inventory, needles in function())
    return function


def setting(
    key: str, value: t.Any, *needles: str, topology: str = "switch", hosts: int = 4, **others: t.Any
) -> tuple[Inventory, tuple[str, ...]]:
    """Return an inventory with one setting changed, and what the message must contain: the key, and more."""
    inventory = Inventory(topology, hosts)
    inventory.fabric = {**inventory.fabric, **others, key: value}
    return inventory, (f"dgxspark_fabric.{key}", *needles)


def of_host(name: str, key: str, value: t.Any, *needles: str) -> tuple[Inventory, tuple[str, ...]]:
    inventory = Inventory()
    inventory.hosts[name][key] = value
    return inventory, (name, key, *needles)


@mutator
def wrong_type() -> t.Iterator[Case]:
    for key, values in {
        "topology": [5, ["switch"], True, {"switch": 4}],
        "hardware": [7, ["spark"]],
        "group": [["dgx"], 3],
        "ports": [0, "0", {"0": 1}, ["0"], [True], [0.5]],
        "vf_count": ["4", 4.0, True, [4], {"4": 4}],
        "vf_stride": ["8", [8], 8.5],
        "vfs": [{0: "serving"}, "serving", [0], [{"index": 0, "use": "serving"}], [["index", 0]]],
        "address_pool": [10, ["10.100.0.0/16"], "ten", "10.100.0.0", "10.100/16", "fd00::/8"],
        "subnet_prefix": ["24", "/24", [24], 24.0],
        "subnets": [["10.1.0.0/24"], "10.1.0.0/24", {"switch/p0f0/0": 5}, {"switch/p0f0/0": "ten"}],
        "mtu": ["9000", 9000.5, "jumbo", [9000], False],
        "mac_prefix": [136, "02", "02:d6:00", "zz:zz", ["02", "d6"]],
        "management_networks": ["192.0.2.0/24", {"lan": "192.0.2.0/24"}, [5], ["lan"], [["192.0.2.0/24"]]],
        "reserved_networks": [["10.42.0.0/16"], "10.42.0.0/16", {"pods": 7}, {"pods": "ten"}],
    }.items():
        for number, value in enumerate(values):
            yield (f"{key}-{number}", *setting(key, value))
    for number, value in enumerate(
        ["spark1:0", {"spark1": "spark2"}, ["spark1:0"], [["spark1", "spark2"]], [["spark1:0"]]]
    ):
        yield (f"cables-{number}", *setting("cables", value, topology="ring"))
    for number, value in enumerate(["3", 1.5, True, [3]]):
        yield (f"index-{number}", *of_host("spark3", "dgxspark_fabric_index", value))
    for number, value in enumerate([["p0f0"], "p0f0", {"p0f0": "enp1s0f0np0"}, {"p0f0": {}}, {"p0f0": {"netdev": 5}}]):
        yield (f"functions-{number}", *of_host("spark3", "dgxspark_fabric_functions", value))
    for number, value in enumerate([["switch"], "switch", None, 4]):
        inventory = Inventory()
        inventory.fabric = value
        yield f"fabric-{number}", inventory, ("dgxspark_fabric",)


@mutator
def out_of_range() -> t.Iterator[Case]:
    for key, values in {
        "vf_count": [0, -1, 9, 1000],
        "vf_stride": [0, -8, 257],
        "subnet_prefix": [7, 15, 31, 33, -24],
        "mtu": [0, -1500, 68, 9979, 70000],
        "ports": [[], [2], [-1], [0, 7]],
        "address_pool": [
            *("10.100.0.0/33", "300.1.0.0/16", "10.100.0.5/16", "10.100.0.0/31", "127.0.0.0/8", "169.254.0.0/16"),
            *("224.0.0.0/4", "240.0.0.0/8", "0.0.0.0/0"),
        ],
        "mac_prefix": ["01:d6", "00:1b", "a9:00"],
    }.items():
        for number, value in enumerate(values):
            yield (f"{key}-{number}", *setting(key, value))
    for number, index in enumerate([4, -1, 64]):
        yield (f"vfs-{number}", *setting("vfs", [{"index": index, "purpose": "serving"}], "vfs[0].index"))
    for number, index in enumerate([0, -3, 65536]):
        yield (f"index-{number}", *of_host("spark2", "dgxspark_fabric_index", index, str(index)))


@mutator
def does_not_fit() -> t.Iterator[Case]:
    yield ("index-in-24", *of_host("spark2", "dgxspark_fabric_index", 255, "255", "10.100.0.0/24", "1 to 254"))
    yield ("prefix", *setting("subnet_prefix", 30, "spark3", "1 to 2"))
    yield ("pool", *setting("address_pool", "10.100.0.0/22", "subnet_prefix", "vf_stride"))
    yield ("stride", *setting("vf_stride", 256, "address_pool"))
    yield ("subnet", *setting("subnets", {"switch/p0f0/0": "172.30.0.0/30"}, "spark3"))
    inventory, _needles = setting("address_pool", "10.100.0.0/20", topology="ring", hosts=6)
    yield "ring", inventory, ("dgxspark_fabric.address_pool", "room for 16 subnets")


@mutator
def unknown_key() -> t.Iterator[Case]:
    for key, meant in {
        "vf_cnt": "vf_count",
        "MTU": "mtu",
        "topologie": "topology",
        "subnet_prefx": "subnet_prefix",
        "managment_networks": "management_networks",
        "adress_pool": "address_pool",
        "vlan": "Known:",
        "gateway": "Known:",
    }.items():
        yield (key, *setting(key, 1, meant))
    yield ("number", *setting(t.cast(str, 7), 1, "Known:"))
    yield ("hardware", *setting("hardware", "sparc", "'sparc'", "spark"))
    yield ("topology", *setting("topology", "swich", "Did you mean switch?"))
    yield ("subnet", *setting("subnets", {"switch/p0f0/9": "172.30.0.0/24"}, "switch/p0f0/9", "Did you mean"))
    yield ("slot", *of_host("spark1", "dgxspark_fabric_functions", {"p9f0": {"netdev": "eth0"}}, "p9f0"))
    yield ("function", *of_host("spark1", "dgxspark_fabric_functions", {"p0f0": {"mac": "x"}}, "p0f0.mac"))
    yield ("fact", *of_host("spark1", "dgxspark_roce", {"functoins": []}, "functoins"))


@mutator
def missing() -> t.Iterator[Case]:
    inventory = Inventory()
    inventory.fabric = UNSET
    yield "settings", inventory, ("dgxspark_fabric.topology", "not set")
    inventory = Inventory()
    del inventory.fabric["topology"]
    yield "topology", inventory, ("dgxspark_fabric.topology", "single, direct, triangle, ring, switch")
    for key in (
        "topology",
        "hardware",
        "group",
        "ports",
        "vf_count",
        "vfs",
        "address_pool",
        "subnets",
        "mtu",
        "mac_prefix",
    ):
        yield (f"value-of-{key}", *setting(key, None))
    inventory = Inventory()
    inventory.group = "sparks"
    yield "group", inventory, ("dgxspark_fabric.group", "dgx")
    yield ("named-group", *setting("group", "sparkz", "sparkz"))
    inventory = Inventory(hosts=0)
    yield "hosts", inventory, ("dgxspark_fabric.group", "dgx")
    yield ("purpose", *setting("vfs", [{"index": 0}], "vfs[0].purpose"))
    yield ("index", *setting("vfs", [{"purpose": "bench"}], "vfs[0].index"))


@mutator
def duplicate() -> t.Iterator[Case]:
    yield ("ports", *setting("ports", [0, 0]))
    vfs = [{"index": 1, "purpose": "bench"}, {"index": 1, "purpose": "serving"}]
    yield ("vfs", *setting("vfs", vfs, "vfs[1].index", "bench"))
    yield ("index-and-position", *of_host("spark4", "dgxspark_fabric_index", 2, "spark2", "index 2"))
    inventory, _needles = of_host("spark1", "dgxspark_fabric_index", 9)
    inventory.hosts["spark3"]["dgxspark_fabric_index"] = 9
    yield "two-pinned", inventory, ("spark1", "spark3", "dgxspark_fabric_index", "index 9")
    for key, value in (("netdev", "eth0"), ("pci", "0000:01:00.0")):
        both = {"p0f0": {key: value}, "p0f1": {key: value}}
        yield (f"function-{key}", *of_host("spark2", "dgxspark_fabric_functions", both, "p0f0", "p0f1", value))


@mutator
def clash_with_another_network() -> t.Iterator[Case]:
    for number, network in enumerate(["10.100.0.0/24", "10.96.0.0/12", "10.100.11.128/25", "10.100.9.7/32"]):
        yield (f"management-{number}", *setting("management_networks", ["192.0.2.0/24", network], network))
    for name, network in (("pods", "10.42.0.0/16"), ("services", "10.43.0.0/16")):
        yield (f"{name}-by-default", *setting("address_pool", network, f"reserved_networks.{name}", network))
        moved, needles = setting("reserved_networks", {name: "10.100.0.0/17"}, f"of the {name}")
        yield f"{name}-moved", moved, (f"{needles[0]}.{name}", *needles[1:])
    inventory, needles = setting("reserved_networks", {"storage": "10.100.8.0/22"})
    yield "named", inventory, (f"{needles[0]}.storage", "10.100.8.0/24")
    yield ("ansible_host", *of_host("spark3", "ansible_host", "10.100.9.3", "10.100.9.3"))
    yield ("subnet", *setting("subnets", {"switch/p0f1/2": "192.0.2.0/25"}, "switch/p0f1/2", "management"))
    yield ("subnet-host", *setting("subnets", {"switch/p0f1/2": "10.43.7.0/24"}, "switch/p0f1/2", "services"))


@mutator
def overlap_with_itself() -> t.Iterator[Case]:
    twins = {"switch/p0f0/0": "172.30.0.0/24", "switch/p0f1/0": "172.30.0.0/24"}
    yield ("twins", *setting("subnets", twins, "switch/p0f0/0", "switch/p0f1/0", "Twin functions"))
    nested = {"switch/p0f0/0": "172.30.0.0/16", "switch/p0f0/1": "172.30.9.0/24"}
    yield ("nested", *setting("subnets", nested, "switch/p0f0/0", "switch/p0f0/1"))
    yield ("pool", *setting("subnets", {"switch/p0f0/0": "10.100.8.0/24"}, "switch/p0f0/0", "switch/p0f1/0"))
    yield ("host-bits", *setting("subnets", {"switch/p0f0/0": "172.30.0.1/24"}, "172.30.0.0/24"))


@mutator
def topology_and_hosts() -> t.Iterator[Case]:
    yield ("single", *setting("topology", "single", "spark1, spark2"))
    yield ("direct", *setting("topology", "direct", "joins 2 hosts"))
    yield ("triangle", *setting("topology", "triangle", "joins 3 hosts"))
    yield ("ring", *setting("topology", "ring", "at least 3", hosts=2))
    yield ("ring-ports", *setting("ports", [0], "two ports", topology="ring"))
    yield ("switch-cables", *setting("cables", [["spark1:0", "spark2:0"]], "switch"))
    for name, cables, needle in (
        ("twice", [["spark1:0", "spark2:0"], ["spark2:0", "spark3:0"]], "spark2:0"),
        ("unknown-host", [["spark1:0", "spark7:0"]], "spark7"),
        ("unknown-port", [["spark1:5", "spark2:0"]], "spark1:5"),
        ("self", [["spark1:0", "spark1:1"]], "spark1:1"),
        ("left-out", [["spark1:0", "spark2:0"], ["spark2:1", "spark1:1"]], "spark3"),
        ("apart", [["spark1:0", "spark2:0"], ["spark3:0", "spark4:0"]], "spark3, spark4"),
        ("line", [["spark1:0", "spark2:0"], ["spark2:1", "spark3:0"], ["spark3:1", "spark4:0"]], "spark1"),
    ):
        yield (f"cables-{name}", *setting("cables", cables, needle, topology="ring"))


@mutator
def one_fabric_for_all() -> t.Iterator[Case]:
    inventory = Inventory()
    inventory.hosts["spark2"]["dgxspark_fabric"] = {**inventory.fabric, "mtu": 1500}
    yield "host", inventory, ("dgxspark_fabric.mtu", "spark2", "spark1")


@mutator
def what_nodes_show() -> t.Iterator[Case]:
    for name, facts, needles in (
        ("nothing", seen(), ("p0f0", "Functions seen: none", "dgxspark_fabric.hardware")),
        ("one-missing", seen(FIRST), ("p0f1", "enP2p1s0f0np0", "cable")),
        ("sriov-off", seen(FIRST, {**SECOND, "totalvfs": 0}), ("p0f1", "vf_count", "SRIOV_EN=1", "NUM_OF_VFS=4")),
        ("few-vfs", seen({**FIRST, "totalvfs": 2}, SECOND), ("p0f0", "dgxspark_fabric.vf_count", "offers 2")),
        (
            "crossed",
            seen({**FIRST, "netdev": SECOND["netdev"]}, {**SECOND, "netdev": FIRST["netdev"]}),
            ("p0f0", "p0f1"),
        ),
        (
            "address",
            seen(FIRST, SECOND, other=[to_plain(Netdev("br0", ipv4=("10.100.1.1/24",)))]),
            ("dgxspark_fabric.address_pool", "br0", "10.100.1.1/24"),
        ),
        (
            "mac",
            seen({**FIRST, "netdev": {"name": "enp1s0f0np0", "mac": "02:d6:00:01:00:00"}}, SECOND),
            ("dgxspark_fabric.mac_prefix", "02:d6:00:01:00:00", "spark1"),
        ),
        ("shape", {"functions": {}}, ("dgxspark_roce.functions",)),
    ):
        inventory, _needles = of_host("spark2", "dgxspark_roce", facts)
        yield name, inventory, ("spark2", *needles)


SHIPPED = {"example": 4, "lab": 4, "direct": 2, "ring": 3}
GOOD = [("switch", 4), ("single", 1), ("direct", 2), ("triangle", 3), ("ring", 5)]


@pytest.fixture(scope="session")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, t.Any]]:
    """Plan all inventories in one process; return the verdict by the case's name."""
    folder = tmp_path_factory.mktemp("inventories")
    inventories = {name: inventory for name, inventory, _needles in CASES}
    inventories |= {f"good-{topology}": Inventory(topology, hosts) for topology, hosts in GOOD}
    folders = {
        str(inventory.write(folder / f"{number}")): name for number, (name, inventory) in enumerate(inventories.items())
    }
    folders |= {str(ROOT / "inventories" / name): f"shipped-{name}" for name in SHIPPED}
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "unit" / "evaluate_plans.py", *folders],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": collections_path(), "ANSIBLE_LOCALHOST_WARNING": "false"},
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return {folders[place]: verdict for place, verdict in json.loads(done.stdout.splitlines()[-1]).items()}


def test_there_are_enough_cases_and_each_has_a_name() -> None:
    assert len(CASES) >= 100
    assert len({name for name, _inventory, _needles in CASES}) == len(CASES)


@pytest.mark.parametrize(("topology", "hosts"), GOOD)
def test_what_the_mutators_begin_with_is_good(verdicts: dict[str, t.Any], topology: str, hosts: int) -> None:
    assert verdicts[f"good-{topology}"] == {"planned": names(hosts)}


def test_every_shipped_inventory_is_planned(verdicts: dict[str, t.Any]) -> None:
    assert {path.name for path in (ROOT / "inventories").iterdir() if path.is_dir()} == set(SHIPPED)
    assert {name: verdicts[f"shipped-{name}"] for name in SHIPPED} == {
        name: {"planned": names(hosts)} for name, hosts in SHIPPED.items()
    }


@pytest.mark.parametrize(("name", "needles"), [(name, needles) for name, _inventory, needles in CASES], ids=str)
def test_bad_input_is_refused_by_name(verdicts: dict[str, t.Any], name: str, needles: tuple[str, ...]) -> None:
    assert "refused" in verdicts[name], f"planned: {verdicts[name]}"
    message = verdicts[name]["refused"]
    for needle in needles:
        assert needle in message
    assert "Traceback" not in message
    assert "object at 0x" not in message
    assert message.count("The fabric cannot be planned") <= 1
    assert len(message) < 1500


# --- a sample through the command ---------------------------------------------------------------------------------------

COMMAND = [
    "wrong_type-mtu-0",
    "missing-settings",
    "missing-group",
    "what_nodes_show-sriov-off",
]


def show_plan(folder: pathlib.Path, inventory: Inventory) -> tuple[int, str, bool]:
    """Run playbooks/plan.yml; return its exit status, its output, and whether anybody tried to reach a node."""
    trap, ssh = folder / "trap", folder / "ssh"
    # Any connection fails, and leaves a trace.
    ssh.write_text(f"#!/bin/sh\ntouch {trap}\nexit 255\n", encoding="utf-8")
    ssh.chmod(0o755)
    extra = {"ansible_ssh_executable": str(ssh), "dgxspark_plan_file": str(folder / "plan.json")}
    program = PROGRAM
    place = inventory.write(folder / "inventory")
    done = subprocess.run(
        [program, ROOT / "playbooks" / "plan.yml", "-i", place, "-e", json.dumps(extra)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": collections_path(), "ANSIBLE_NOCOLOR": "1"},
    )
    return done.returncode, done.stdout + done.stderr, trap.exists()


@pytest.mark.parametrize("name", [COMMAND[0], *(pytest.param(name, marks=pytest.mark.more) for name in COMMAND[1:])])
def test_the_playbook_refuses_before_it_touches_a_node(tmp_path: pathlib.Path, name: str) -> None:
    inventory, needles = next((i, needles) for case, i, needles in CASES if case == name)
    code, output, touched = show_plan(tmp_path, inventory)
    assert code != 0, output
    plain = " ".join(output.split())
    # The guard already reports the missing group, and knows no settings.
    for needle in needles if name != "missing-group" else ("dgx",):
        assert needle in plain
    assert "Traceback" not in output
    assert not touched
    assert not (tmp_path / "plan.json").exists()


def test_a_good_inventory_of_which_no_node_answers_is_planned_and_marked(tmp_path: pathlib.Path) -> None:
    code, output, touched = show_plan(tmp_path, Inventory())
    assert code == 0, output
    assert touched, "the trap of the tests above does not work"
    assert "spark4 (index 4, from inventory alone)" in output
    assert "the host was not reached" in output
    written = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert list(written["hosts"]) == names(4)
    assert written["changes"] == {}


def test_of_a_node_that_was_seen_the_plan_tells_what_would_change(tmp_path: pathlib.Path) -> None:
    inventory = Inventory(hosts=2)
    inventory.hosts["spark1"]["dgxspark_roce"] = seen(FIRST, SECOND)
    code, output, _touched = show_plan(tmp_path, inventory)
    assert code == 0, output
    assert "spark1 (index 1)" in output
    assert "p0f1: VFs 0 -> 4" in output
    assert "spark2 (index 2, from inventory alone)" in output
    written = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert list(written["changes"]) == ["spark1"]
    assert {"subject": "p0f1", "what": "VFs", "before": 0, "after": 4} in written["changes"]["spark1"]
