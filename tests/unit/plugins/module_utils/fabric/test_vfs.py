"""What differs, and what forbids a change: on values, without files."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import persist, vfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    Arp,
    Change,
    FileState,
    Finding,
    Function,
    Hca,
    Netdev,
    Node,
    Place,
    PlannedFunction,
    PlannedVf,
    Vf,
)
from ansible_collections.dgxspark.cluster.tests.support.properties import examples

GOOD_ARP = Arp(1, 2, 2)
PCI = "0000:01:00.0"


def mac(index: int) -> str:
    return f"02:d6:01:00:00:{index:02x}"


def plan(count: int = 3, pci: str | None = PCI, mtu: int = 9000, slot: str = "p0f0") -> PlannedFunction:
    planned = [PlannedVf(i, "spare", mac(i), f"10.100.{i}.1", 24, f"10.100.{i}.0/24", mtu) for i in range(count)]
    return PlannedFunction(slot, 0, 0, "switch", "enp1s0f0np0", pci, mtu, tuple(planned))


def good_vf(index: int, **changes: t.Any) -> Vf:
    netdev = Netdev(f"enp1s0f0v{index}", mac(index), 9000, "up", True, 100000, (), GOOD_ARP)
    vf = Vf(
        index,
        f"0000:01:01.{index}",
        "mlx5_core",
        netdev,
        Hca(f"rocep1s0f0v{index}", "0200:00ff:fe00:0001"),
        mac(index),
        False,
        True,
        Place("host"),
    )
    return dataclasses.replace(vf, **changes)


def with_netdev(vf: Vf, **changes: t.Any) -> Vf:
    assert vf.netdev
    return dataclasses.replace(vf, netdev=dataclasses.replace(vf.netdev, **changes))


def in_pod(vf: Vf, **changes: t.Any) -> Vf:
    away = with_netdev(vf, name="net1", mtu=1500, carrier=None, operstate="down", arp=Arp(0, 0, 0))
    return dataclasses.replace(away, place=Place("pod", "/run/netns/cni-1", 2), **changes)


def good_function(count: int = 3, **changes: t.Any) -> Function:
    netdev = Netdev("enp1s0f0np0", "4c:bb:47:00:00:01", 9000, "up", True, 100000, (), GOOD_ARP)
    function = Function(
        PCI,
        "15b3:1021",
        "mlx5_core",
        netdev=netdev,
        totalvfs=8,
        numvfs=count,
        eswitch="legacy",
        vfs=tuple(good_vf(i) for i in range(count)),
    )
    return dataclasses.replace(function, **changes)


def installed(functions: t.Sequence[Function], planned: t.Sequence[PlannedFunction], options: vfs.Options) -> Node:
    import hashlib

    bare = Node(functions=tuple(functions))
    files = persist.managed_files(vfs.desired(bare, planned, options), b"program")
    states = [FileState(path, hashlib.sha256(text).hexdigest(), mode) for path, (text, mode) in files.items()]
    return dataclasses.replace(bare, files=tuple(states), units={persist.UNIT: "enabled"})


def drift(function: Function, planned: PlannedFunction | None = None, **options: t.Any) -> list[Change]:
    chosen = vfs.Options(**options)
    plans = [planned or plan()]
    return vfs.drift(installed([function], plans, chosen), plans, chosen, b"program")


def told(changes: t.Sequence[Change]) -> list[tuple[str, str, t.Any, t.Any]]:
    return [(c.subject, c.what, c.before, c.after) for c in changes]


def refusals(function: Function | None, planned: PlannedFunction | None = None, **options: t.Any) -> list[Finding]:
    node = Node(functions=(function,) if function else ())
    return vfs.refusals(node, [planned or plan()], vfs.Options(**options))


def replace_vf(function: Function, vf: Vf) -> Function:
    return dataclasses.replace(function, vfs=tuple(vf if v.index == vf.index else v for v in function.vfs))


def test_a_node_as_planned_differs_in_nothing_and_refuses_nothing() -> None:
    assert drift(good_function()) == []
    assert refusals(good_function()) == []


def test_a_bare_node_says_all_that_it_will_get() -> None:
    node = Node(functions=(good_function(0),))
    changes = vfs.drift(node, [plan()], vfs.Options(), b"program")
    assert ("p0f0", "VFs", 0, 3) in told(changes)
    assert [c.after for c in changes if c.what == "mac"] == [mac(0), mac(1), mac(2)]
    assert {*persist.PATHS, persist.UNIT} < {c.subject for c in changes}


@pytest.mark.parametrize(
    ("vf", "expected"),
    [
        (with_netdev(good_vf(1), mac="3a:00:00:00:00:01"), ("p0f0v1", "mac", "3a:00:00:00:00:01", mac(1))),
        (good_vf(1, admin_mac="00:00:00:00:00:00"), ("p0f0v1", "mac", "00:00:00:00:00:00", mac(1))),
        (with_netdev(good_vf(1), mtu=1500), ("p0f0v1", "mtu", 1500, 9000)),
        (with_netdev(good_vf(1), arp=Arp(0, 2, 2)), ("p0f0v1", "arp_ignore", 0, 1)),
        (with_netdev(good_vf(1), carrier=None, operstate="down"), ("p0f0v1", "link", "down", "up")),
        (good_vf(1, driver=None, netdev=None, hca=None, place=Place("unbound")), ("p0f0v1", "driver", None, "bound")),
        (good_vf(1, hca=Hca("x", "0000:0000:0000:0000")), ("p0f0v1", "node GUID", "0000:0000:0000:0000", "of its MAC")),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)
def test_one_thing_wrong_with_a_vf_is_one_change(vf: Vf, expected: tuple[str, str, t.Any, t.Any]) -> None:
    assert told(drift(replace_vf(good_function(), vf))) == [expected]


def test_no_carrier_is_not_a_link_that_is_set_down() -> None:
    assert drift(replace_vf(good_function(), with_netdev(good_vf(1), carrier=False, operstate="down"))) == []


def test_trust_is_left_alone_unless_it_is_said() -> None:
    trusted = replace_vf(good_function(), good_vf(1, trust=True, spoof_check=False))
    assert drift(trusted) == []
    assert told(drift(trusted, trust=False)) == [("p0f0v1", "trust", True, False)]
    assert told(drift(trusted, spoof_check=True)) == [("p0f0v1", "spoof check", False, True)]


def test_the_function_s_own_settings() -> None:
    function = good_function()
    assert function.netdev
    wrong = dataclasses.replace(function.netdev, mtu=1500, arp=Arp(1, 0, 2), carrier=None, operstate="down")
    assert told(drift(dataclasses.replace(function, netdev=wrong))) == [
        ("p0f0", "arp_announce", 0, 2),
        ("p0f0", "mtu", 1500, 9000),
        ("p0f0", "link", "down", "up"),
    ]


def test_a_vf_in_a_live_pod_is_no_reason_for_a_change_nor_for_a_refusal() -> None:
    serving = replace_vf(good_function(), in_pod(good_vf(1)))
    assert drift(serving) == []
    assert refusals(serving) == []


def test_a_vf_in_a_live_pod_with_another_mac_is_named() -> None:
    serving = replace_vf(good_function(), in_pod(good_vf(1), admin_mac="02:00:00:00:00:01"))
    assert drift(serving) == []
    (finding,) = refusals(serving)
    assert finding.severity == "error"
    assert all(part in str(finding) for part in ("p0f0v1", "/run/netns/cni-1", mac(1), "Stop the pod"))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_count_does_not_change_while_a_vf_is_in_a_live_pod(count: int) -> None:
    (finding,) = refusals(replace_vf(good_function(), in_pod(good_vf(1))), plan(count))
    assert finding.id == "sriov.in-use"
    assert all(part in str(finding) for part in ("p0f0v1", f"3 VFs cannot be changed to {count}", "/run/netns/cni-1"))


@pytest.mark.parametrize("wrong", [{"count": 2}, {"mac": True}])
def test_neither_count_nor_mac_change_under_queue_pairs(wrong: dict[str, t.Any]) -> None:
    busy = good_vf(1, users=("ib_write_bw (4711)",))
    if "mac" in wrong:
        busy = with_netdev(busy, mac="3a:00:00:00:00:01")
    (finding,) = refusals(replace_vf(good_function(), busy), plan(wrong.get("count", 3)))
    assert "ib_write_bw (4711)" in str(finding) and "p0f0v1" in str(finding)


def test_queue_pairs_are_no_matter_where_nothing_is_taken_away() -> None:
    assert refusals(replace_vf(good_function(), with_netdev(good_vf(1, users=("x (1)",)), mtu=1500))) == []


def test_a_stranded_vf_is_refused_or_freed_on_request() -> None:
    stranded = replace_vf(good_function(), in_pod(good_vf(1)))
    vf = dataclasses.replace(stranded.vfs[1], place=Place("stranded", "/run/netns/cni-1", 0))
    stranded = replace_vf(stranded, vf)
    assert drift(stranded) == []
    (finding,) = refusals(stranded)
    assert "sriov_roce_reset_stranded: true" in finding.remedy and "/run/netns/cni-1" in finding.message
    assert refusals(stranded, reset_stranded=True) == []
    assert told(drift(stranded, reset_stranded=True)) == [("p0f0v1", "place", "dead /run/netns/cni-1", "host")]
    nameless = replace_vf(stranded, dataclasses.replace(vf, place=Place("stranded", None, 0)))
    assert "reboot" in refusals(nameless, reset_stranded=True)[0].remedy


@pytest.mark.parametrize(("total", "words"), [(0, "sriov_totalvfs is 0"), (None, "no sriov_totalvfs")])
def test_firmware_without_vfs_is_explained(total: int | None, words: str) -> None:
    (finding,) = refusals(good_function(0, totalvfs=total, numvfs=total))
    assert words in finding.message
    assert all(part in finding.remedy for part in ("SRIOV_EN=1", "NUM_OF_VFS=3", PCI, "power the node off"))


def test_more_vfs_than_the_function_has() -> None:
    (finding,) = refusals(good_function(), plan(9))
    assert "9" in finding.message and "8" in finding.message and "vf_count" in finding.remedy


def test_a_function_that_is_not_there() -> None:
    (finding,) = refusals(None)
    assert PCI in finding.subject and "cable" in str(finding)
    assert vfs.compare(Node(), vfs.desired(Node(), [plan()])) == []


def test_a_function_is_found_by_name_where_the_plan_has_no_address() -> None:
    function, planned = good_function(), plan(pci=None)
    assert drift(function, planned) == []
    assert drift(function, planned) == drift(function, plan())


def test_switchdev_mode_means_remaking_the_vfs() -> None:
    other = good_function(eswitch="switchdev")
    changes = told(drift(other))
    assert changes[0] == ("p0f0", "eswitch", "switchdev", "legacy")
    assert [c[3] for c in changes if c[1] == "mac"] == [mac(0), mac(1), mac(2)]
    (finding,) = refusals(replace_vf(other, in_pod(good_vf(1))))
    assert "eswitch mode" in finding.message
    assert drift(good_function(eswitch=None)) == []


def test_a_function_carries_what_its_vfs_carry() -> None:
    planned = plan()
    jumbo = dataclasses.replace(planned, vfs=tuple(dataclasses.replace(vf, mtu=9100) for vf in planned.vfs))
    assert vfs.desired(Node(), [jumbo])["functions"][0]["mtu"] == 9100


def test_removal_is_refused_while_a_vf_is_used() -> None:
    node = Node(functions=(replace_vf(good_function(), in_pod(good_vf(1))),))
    before = {"version": 1, "functions": [{"slot": "p0f0", "pci": PCI, "vf_count": 0, "vfs": []}]}
    assert [f.id for f in vfs.removal_refusals(node, before)] == ["sriov.in-use"]
    assert vfs.removal_refusals(Node(functions=(good_function(),)), before) == []


STATES = st.sampled_from(["good", "mac", "admin", "mtu", "down", "pod", "stranded", "unbound", "users"])


def vf_in(state: str, index: int) -> Vf:
    vf = good_vf(index)
    return {
        "good": vf,
        "mac": with_netdev(vf, mac="3a:00:00:00:00:01"),
        "admin": dataclasses.replace(vf, admin_mac="00:00:00:00:00:00"),
        "mtu": with_netdev(vf, mtu=1500),
        "down": with_netdev(vf, carrier=None, operstate="down"),
        "pod": in_pod(vf),
        "stranded": dataclasses.replace(in_pod(vf), place=Place("stranded", "/run/netns/x", 0)),
        "unbound": dataclasses.replace(vf, driver=None, netdev=None, hca=None, place=Place("unbound")),
        "users": dataclasses.replace(vf, users=("x (1)",)),
    }[state]


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(STATES, max_size=7), st.integers(0, 8))
def test_a_used_vf_is_never_taken_away(states: list[str], count: int) -> None:
    function = good_function(len(states), vfs=tuple(vf_in(state, i) for i, state in enumerate(states)))
    changes, findings = drift(function, plan(count)), refusals(function, plan(count))
    touched = {c.subject for c in changes}
    used = [i for i, state in enumerate(states) if state in ("pod", "users")]
    refused = " ".join(str(f) for f in findings if f.id == "sriov.in-use")
    if ("p0f0", "VFs", len(states), count) in told(changes):
        assert all(f"p0f0v{i} " in refused for i in used)
    else:
        assert not {f"p0f0v{i}" for i in used} & touched and not refused


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(STATES, max_size=7), st.integers(0, 7))
def test_what_was_there_before_differs_in_nothing_from_what_is_there(states: list[str], count: int) -> None:
    node = Node(functions=(good_function(len(states), vfs=tuple(vf_in(s, i) for i, s in enumerate(states))),))
    noted = vfs.before(node, vfs.desired(node, [plan(count)]))
    kinds = {change.what for change in vfs.compare(node, noted)}
    assert kinds <= {"mac", "driver"}  # a MAC that is not in effect, a driver that was not bound
    assert vfs.before(node, noted) == noted


# --- functions that are no longer planned -------------------------------------------------------------------------------

SECOND = "0002:01:00.0"


def second_function(prefix: str) -> Function:
    """A function that is not planned, whose VFs have MACs with this prefix."""
    vfs_there = tuple(good_vf(i, admin_mac=prefix + mac(i)[5:]) for i in range(2))
    return good_function(2, pci=SECOND, netdev=Netdev("enP2p1s0f0np0", "4c:bb:47:00:00:02", 9000), vfs=vfs_there)


def test_a_function_that_is_planned_no_longer_is_known_by_the_macs_of_its_vfs() -> None:
    node = Node(functions=(good_function(), second_function("02:d6")))
    assert told(vfs.compare(node, vfs.gone(node, [plan()]))) == [("enP2p1s0f0np0", "VFs", 2, 0)]
    assert vfs.removal_refusals(node, vfs.gone(node, [plan()])) == []


def test_vfs_of_somebody_else_are_no_business_of_the_plan() -> None:
    node = Node(functions=(good_function(), second_function("52:54")))
    assert vfs.gone(node, [plan()])["functions"] == []


def test_what_was_noted_of_such_a_function_comes_back() -> None:
    node = Node(functions=(good_function(), second_function("02:d6")))
    noted: vfs.Document = {
        "functions": [{"slot": s, "pci": p, "vf_count": 1, "vfs": []} for s, p in (("p0f0", PCI), ("p1f0", SECOND))]
    }
    assert told(vfs.compare(node, vfs.gone(node, [plan()], noted))) == [("p1f0", "VFs", 2, 1)]
