"""GID check: the entry of each VF, or the reason why it has none."""

from __future__ import annotations

import pathlib
import typing as t
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.gids import (
    HOPELESS,
    CommonIndex,
    GidEntry,
    common_index,
    judge,
)
from ansible_collections.dgxspark.cluster.plugins.module_utils.facts import read_node
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import (
    ROCE_V1,
    ROCE_V2,
    Finding,
    Function,
    Gid,
    Hca,
    Netdev,
    Node,
    Place,
    PlannedFunction,
    PlannedVf,
    Port,
    Vf,
)
from ansible_collections.dgxspark.cluster.tests.unit.fakes import FakeNode, lab, spark

V4 = "0000:0000:0000:0000:0000:ffff:0a64:0001"  # 10.100.0.1
OTHER = "0000:0000:0000:0000:0000:ffff:0a64:0002"
LOCAL = "fe80:0000:0000:0000:0200:00ff:fe00:0001"


def planned(netdev: str = "enp1s0f0np0", pci: str | None = None, count: int = 1) -> PlannedFunction:
    vfs = tuple(
        PlannedVf(i, "serving", "02:d6:00:00:00:01", f"10.100.{i}.1", 24, f"10.100.{i}.0/24", 9000)
        for i in range(count)
    )
    return PlannedFunction("p0f0", 0, 0, "switch", netdev, pci, 9000, vfs)


def check(node: FakeNode, *plans: PlannedFunction) -> tuple[list[GidEntry], list[Finding]]:
    found = read_node(
        Sysfs(node.sysfs), node.run, device_ids=node.device_ids, enter=node.enter, details=False, **node.roots
    )
    return judge(found, plans or [planned()])


def cause(node: FakeNode) -> Finding:
    entries, findings = check(node)
    assert not entries
    (finding,) = findings
    assert finding.severity == "error" and finding.remedy
    return finding


# --- right --------------------------------------------------------------------------------------------------------


def test_soft_roce_after_netplan(tmp_path: pathlib.Path) -> None:
    node = lab(tmp_path, vfs=2)
    node.address("enp1s0f0v0", "10.100.0.1/24")
    assert check(node) == ([GidEntry("p0f0", 0, "roce_x0", 1, "enp1s0f0v0", "10.100.0.1", 1, "host")], [])


def test_mlx5_has_version_1_first(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=2)
    node.address("enp1s0f0v0", "10.100.0.1/24")
    entries, findings = check(node)
    assert not findings
    assert [(entry.hca, entry.index) for entry in entries] == [("rocep1s0f0v0", 3)]


def test_the_index_is_found_wherever_it_is(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=1)
    node.address("enp1s0f0v0", "10.100.0.1/24")
    node.gids(
        "rocep1s0f0v0",
        [(LOCAL, ROCE_V2, "enp1s0f0v0"), None, (OTHER, ROCE_V2, "enp1s0f0v0"), None, (V4, ROCE_V2, "enp1s0f0v0")],
    )
    assert [entry.index for entry in check(node)[0]] == [4]


def test_a_vf_in_a_live_pod_is_judged_there(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=1)
    node.add_namespace("cni-1")
    node.move("enp1s0f0v0", "cni-1", "net1")
    node.address("net1", "10.100.0.1/24")
    ((entry,), findings) = check(node)
    assert (entry.place, entry.netdev, entry.index) == ("pod", "net1", 3) and not findings


def test_a_function_is_found_by_pci_address_whatever_its_name(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=1)
    node.address("enp1s0f0v0", "10.100.0.1/24")
    assert not check(node, planned("eth7", "0000:01:00.0"))[1]
    assert check(node, planned("enp1s0f0np0", "0009:01:00.0"))[1][0].id == "gid.function-missing"


# --- wrong, each with its cause -------------------------------------------------------------------------------------


def test_function_missing(tmp_path: pathlib.Path) -> None:
    entries, (finding,) = check(spark(tmp_path, vfs=1), planned("enp9s0np0"))
    assert not entries
    assert finding.id == "gid.function-missing" and "enp9s0np0" in str(finding) and "cable" in str(finding)


def test_vf_missing(tmp_path: pathlib.Path) -> None:
    finding = cause(spark(tmp_path, vfs=0))
    assert finding.id == "gid.vf-missing" and "VF 0 of enp1s0f0np0" in str(finding)


def test_vf_stranded(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=1)
    node.add_namespace("cni-1", pids=0)
    node.move("enp1s0f0v0", "cni-1")
    finding = cause(node)
    assert finding.id == "gid.vf-stranded" and "cni-1" in str(finding)


def test_vf_unbound(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=1)
    node.unbind("0000:01:01.0")
    assert cause(node).id == "gid.vf-unbound"


def test_hca_missing(tmp_path: pathlib.Path) -> None:
    node = lab(tmp_path, vfs=1, rxe=False)
    node.address("enp1s0f0v0", "10.100.0.1/24")
    assert cause(node).id == "gid.hca-missing"


def test_hca_missing_in_a_pod(tmp_path: pathlib.Path) -> None:
    node = lab(tmp_path, vfs=1)
    node.add_namespace("cni-1")
    node.move("enp1s0f0v0", "cni-1", "net1")
    node.address("net1", "10.100.0.1/24")
    finding = cause(node)
    assert finding.id == "gid.hca-missing" and "pod" in finding.subject and "net1" in finding.subject


@pytest.mark.parametrize("how", ["admin", "carrier"])
def test_link_down(tmp_path: pathlib.Path, how: str) -> None:
    node = spark(tmp_path, vfs=1)
    node.address("enp1s0f0v0", "10.100.0.1/24", up=how != "admin")
    node.devices["enp1s0f0v0"].carrier = how != "carrier"
    node.sync()
    finding = cause(node)
    assert finding.id == "gid.link-down"
    assert "only link-local" not in str(finding)  # it does have its address


def test_a_netdev_that_is_down_is_enough(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=1)
    node.address("enp1s0f0v0", "10.100.0.1/24", up=False)
    (tmp_path / "sys/class/infiniband/rocep1s0f0v0/ports/1/state").write_text("4: ACTIVE\n")
    finding = cause(node)
    assert finding.id == "gid.link-down" and "netdev is down" in str(finding)


def test_an_unknown_port_state_is_no_cause(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=1)
    node.address("enp1s0f0v0", "10.100.0.1/24")
    (tmp_path / "sys/class/infiniband/rocep1s0f0v0/ports/1/state").unlink()
    assert not check(node)[1]


def test_a_port_that_is_not_active_is_a_link_down(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=1)
    node.address("enp1s0f0v0", "10.100.0.1/24")
    (tmp_path / "sys/class/infiniband/rocep1s0f0v0/ports/1/state").write_text("1: DOWN\n")
    finding = cause(node)
    assert finding.id == "gid.link-down" and "rocep1s0f0v0 is DOWN" in str(finding)


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize("make", [spark, lab])
def test_the_seeds_failure_is_named(tmp_path: pathlib.Path, make: t.Callable[..., FakeNode], up: bool) -> None:
    """VFs without a host-side IPv4, as on the first owner's cluster; before netplan they are down, too."""
    node = make(tmp_path, vfs=1)
    node.address("enp1s0f0v0", up=up)
    finding = cause(node)
    assert "only link-local" in str(finding) and "no IPv4" in str(finding)
    assert finding.id == ("gid.no-ipv4" if up else "gid.link-down")


def test_no_ipv4_and_no_gids_at_all(tmp_path: pathlib.Path) -> None:
    node = lab(tmp_path, vfs=1)
    node.address("enp1s0f0v0")
    node.gids("roce_x0", [])
    finding = cause(node)
    assert finding.id == "gid.no-ipv4" and "empty" in str(finding) and "only link-local" not in str(finding)


def test_only_link_local_is_said_only_where_it_is_so(tmp_path: pathlib.Path) -> None:
    node = lab(tmp_path, vfs=1)
    node.address("enp1s0f0v0")
    node.gids("roce_x0", [(LOCAL, ROCE_V2, "enp1s0f0v0"), (OTHER, ROCE_V2, "enp1s0f0v0")])
    finding = cause(node)
    assert finding.id == "gid.no-ipv4" and "only link-local" not in str(finding) and "10.100.0.2" in str(finding)


def test_wrong_ipv4(tmp_path: pathlib.Path) -> None:
    node = lab(tmp_path, vfs=1)
    node.address("enp1s0f0v0", "10.100.0.10/24")
    finding = cause(node)
    assert finding.id == "gid.wrong-ipv4"
    assert "10.100.0.10/24" in str(finding) and "10.100.0.1/24" in str(finding)


@pytest.mark.parametrize(
    ("entries", "expected", "text"),
    [
        ([(V4, ROCE_V1, "enp1s0f0v0")], "gid.roce-v1-only", "RoCE v1 only"),
        ([(V4, ROCE_V1, "enp1s0f0v0"), (V4, ROCE_V2, "enp1s0f1v0")], "gid.wrong-netdev", "enp1s0f1v0"),
        ([(V4, ROCE_V2, "")], "gid.wrong-netdev", "(none)"),
        ([(LOCAL, ROCE_V2, "enp1s0f0v0")], "gid.not-in-table", "only link-local"),
        ([(OTHER, ROCE_V2, "enp1s0f0v0")], "gid.not-in-table", "10.100.0.2"),
        ([], "gid.not-in-table", "empty"),
    ],
)
def test_what_the_table_says(
    tmp_path: pathlib.Path, entries: list[tuple[str, str, str]], expected: str, text: str
) -> None:
    node = lab(tmp_path, vfs=1)
    node.address("enp1s0f0v0", "10.100.0.1/24")
    node.gids("roce_x0", entries)
    finding = cause(node)
    assert finding.id == expected and text in str(finding)


def test_every_vf_gets_its_own_answer(tmp_path: pathlib.Path) -> None:
    node = spark(tmp_path, vfs=3)
    for index in (0, 2):
        node.address(f"enp1s0f0v{index}", f"10.100.{index}.1/24")
    entries, (finding,) = check(node, planned(count=3))
    assert [entry.vf for entry in entries] == [0, 2]
    assert "p0f0v1" in finding.subject and "enp1s0f0v1" in finding.subject


# --- invariants -----------------------------------------------------------------------------------------------------

GIDS = st.lists(
    st.tuples(
        st.sampled_from([V4, OTHER, LOCAL]),
        st.sampled_from([ROCE_V1, ROCE_V2, None]),
        st.sampled_from(["v0", "x", None]),
    ),
    max_size=6,
)
NETDEVS = st.builds(
    Netdev,
    name=st.just("v0"),
    operstate=st.sampled_from(["up", "down", "unknown", None]),
    carrier=st.sampled_from([True, False, None]),
    ipv4=st.sampled_from([(), ("10.100.0.1/24",), ("10.100.0.2/24",), ("10.100.0.2/24", "10.100.0.1/24")]),
)


@st.composite
def vfs(draw: st.DrawFn) -> Vf:
    gids = tuple(Gid(index * 2, *entry) for index, entry in enumerate(draw(GIDS)))
    port = Port(1, state=draw(st.sampled_from(["ACTIVE", "DOWN", None])), gids=gids)
    return Vf(
        index=draw(st.integers(0, 1)),
        pci="0000:01:01.0",
        driver=draw(st.sampled_from(["mlx5_core", None])),
        netdev=draw(st.none() | NETDEVS),
        hca=draw(st.sampled_from([None, Hca("h", ports=(port,)), Hca("h")])),
        place=draw(st.sampled_from([Place("host"), Place("pod", "/n", 1), Place("stranded", "/n"), Place("unbound")])),
    )


@given(vfs())
def test_a_vf_is_right_or_has_a_cause_and_never_both(vf: Vf) -> None:
    node = Node(functions=(Function("0000:01:00.0", netdev=Netdev("pf"), vfs=(vf,)),))
    entries, findings = judge(node, [planned("pf")])
    assert len(entries) + len(findings) == 1
    for entry in entries:
        assert vf.index == 0 and vf.netdev and vf.hca and vf.place.state in ("host", "pod", "unbound")
        (gid,) = [gid for gid in vf.hca.ports[0].gids if gid.index == entry.index]
        assert (gid.ipv4, gid.type, gid.netdev) == ("10.100.0.1", ROCE_V2, vf.netdev.name)
        assert entry.address in {text.split("/")[0] for text in vf.netdev.ipv4}
        assert vf.netdev.carrier is not False
    for finding in findings:
        assert finding.id.startswith("gid.") and finding.subject and finding.remedy
        assert finding.message.endswith(".")


def test_waiting_is_not_for_what_it_cannot_cure() -> None:
    assert "gid.vf-missing" in HOPELESS
    assert not HOPELESS & {"gid.no-ipv4", "gid.link-down", "gid.not-in-table", "gid.hca-missing", "gid.wrong-ipv4"}


# --- one index for all ----------------------------------------------------------------------------------------------

ENTRY = GidEntry("p0f0", 0, "hca0", 1, "v0", "10.100.0.1", 3, "host")


def test_one_index_fits_all() -> None:
    assert common_index({"spark1": [ENTRY, ENTRY], "spark2": [ENTRY]}) == CommonIndex(
        True, 3, "GID index 3 fits all 3 HCAs."
    )


def test_who_differs_is_named() -> None:
    answer = common_index({"spark1": [ENTRY, ENTRY], "spark2": [replace(ENTRY, index=5, hca="hca7")]})
    assert (answer.fits, answer.index) == (False, None)
    assert "spark2 hca7 has 5" in answer.message and "most HCAs have 3" in answer.message


@pytest.mark.parametrize(("hosts", "who"), [({"spark1": [ENTRY], "spark2": []}, "spark2"), ({}, "no host")])
def test_a_host_without_entries_has_no_common_index(hosts: dict[str, list[GidEntry]], who: str) -> None:
    answer = common_index(hosts)
    assert not answer.fits and who in answer.message


@given(st.dictionaries(st.text("abc", min_size=1), st.lists(st.integers(0, 3).map(lambda i: replace(ENTRY, index=i)))))
def test_it_fits_only_when_all_are_equal(hosts: dict[str, list[GidEntry]]) -> None:
    indices = {entry.index for entries in hosts.values() for entry in entries}
    answer = common_index(hosts)
    assert answer.fits == (len(indices) == 1 and all(hosts.values()))
    assert answer.index == (indices.pop() if answer.fits else None)
    assert common_index(dict(reversed(hosts.items()))).fits == answer.fits
