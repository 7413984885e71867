"""Who is joined with whom: default cablings, cablings by hand, and those that are refused."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.fabric.topologies import TOPOLOGIES, cabled
from ansible_collections.dgxspark.cluster.tests.unit.fabric_inputs import CLASS, ONE_PORT, make, refusal


def segments(hosts: int, settings: dict[str, t.Any]) -> dict[str, list[str]]:
    plan = make(hosts, settings)
    return {s["id"]: [f"{m['host']}:{m['port']}" for m in s["members"]] for s in plan["segments"]}


def test_a_switch_is_one_segment() -> None:
    assert segments(3, {"topology": "switch"}) == {"switch": ["spark1:0", "spark2:0", "spark3:0"]}


def test_both_ports_may_hang_on_the_switch() -> None:
    plan = make(2, {"topology": "switch", "ports": [0, 1], "vf_count": 1})
    (pair,) = plan["pairs"]
    assert [path["slot_a"] for path in pair["paths"]] == ["p0f0", "p0f1", "p1f0", "p1f1"]
    assert all(path["slot_a"] == path["slot_b"] for path in pair["paths"])


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        (None, {"cable1": ["spark1:0", "spark2:0"]}),
        ([1], {"cable2": ["spark1:1", "spark2:1"]}),
        ([0, 1], {"cable1": ["spark1:0", "spark2:0"], "cable2": ["spark1:1", "spark2:1"]}),
    ],
)
def test_direct_joins_like_ports(ports: list[int] | None, expected: dict[str, list[str]]) -> None:
    assert segments(2, {"topology": "direct"} | ({"ports": ports} if ports else {})) == expected


def test_a_triangle_is_a_ring_of_three_in_which_all_are_neighbours() -> None:
    cables = {
        "cable1": ["spark1:1", "spark2:0"],
        "cable2": ["spark2:1", "spark3:0"],
        "cable3": ["spark1:0", "spark3:1"],
    }
    assert segments(3, {"topology": "triangle"}) == cables == segments(3, {"topology": "ring"})
    pairs = {(p["a"], p["b"]) for p in make(3, {"topology": "triangle"})["pairs"]}
    assert pairs == {("spark1", "spark2"), ("spark2", "spark3"), ("spark1", "spark3")}


def test_on_a_cable_function_f_meets_function_f() -> None:
    plan = make(4, {"topology": "ring", "vf_count": 1})
    pair = next(pair for pair in plan["pairs"] if pair["segment"] == "cable2")
    assert (pair["a"], pair["b"]) == ("spark2", "spark3")
    assert [(path["slot_a"], path["slot_b"]) for path in pair["paths"]] == [("p1f0", "p0f0"), ("p1f1", "p0f1")]


def test_a_ring_of_four_says_that_not_all_are_neighbours() -> None:
    plan = make(4, {"topology": "ring"})
    assert len(plan["pairs"]) == 4
    assert any("neighbours" in note for note in plan["notes"])


def test_cables_by_hand_are_numbered_as_listed() -> None:
    cables = [["spark3:0", "spark1:0"], ["spark1:1", "spark2:1"], ["spark2:0", "spark3:1"]]
    assert segments(3, {"topology": "triangle", "cables": cables}) == {
        "cable1": ["spark1:0", "spark3:0"],
        "cable2": ["spark1:1", "spark2:1"],
        "cable3": ["spark2:0", "spark3:1"],
    }


def test_a_cable_may_cross() -> None:
    assert segments(2, {"topology": "direct", "cables": [["spark1:0", "spark2:1"]]}) == {
        "cable1": ["spark1:0", "spark2:1"]
    }


def ring(*cables: str) -> dict[str, t.Any]:
    return {"topology": "ring", "cables": [cable.split("-") for cable in cables]}


@pytest.mark.parametrize(
    ("hosts", "settings", "parts"),
    [
        (2, {"topology": "single"}, ["topology single joins 1 host,", "has 2: spark1, spark2"]),
        (3, {"topology": "direct"}, ["topology direct joins 2 hosts", "has 3"]),
        (4, {"topology": "triangle"}, ["topology triangle joins 3 hosts", "has 4"]),
        (2, {"topology": "ring"}, ["topology ring joins at least 3 hosts", "has 2"]),
        (3, ring("spark1:0-spark2:0", "spark2:0-spark3:0"), ["cables[1]", "spark2:0 is already in cables[0]"]),
        (3, ring("spark1:0-spark9:0"), ["cables[0]", "no host spark9", "Did you mean spark"]),
        (3, ring("spark1:7-spark2:0"), ["cables[0]", "spark1:7", "no port 7", "ports 0, 1"]),
        (3, ring("spark1:0-spark1:1"), ["cables[0]", "spark1:0 and spark1:1 are on the same host"]),
        (3, ring("spark1:0-spark1:0"), ["cables[0]", "on the same host"]),
        (3, ring("spark1:0-spark2:0"), ["spark3 has no cable", "remove spark3 from the group dgx"]),
        (
            4,
            ring("spark1:0-spark2:0", "spark3:0-spark4:0"),
            ["no path leads from spark1 to spark3, spark4"],
        ),
        (
            3,
            ring("spark1:0-spark2:0", "spark2:1-spark3:0"),
            ["spark1 has cables to spark2.", "each host has two cables, to two other hosts"],
        ),
        (
            3,
            ring("spark1:0-spark2:0", "spark1:1-spark2:1", "spark3:0-spark3:1"),
            ["spark3:0 and spark3:1 are on the same host"],
        ),
        (3, {"topology": "ring", "ports": [0]}, ["dgxspark_fabric.ports", "two ports", "port 0 is in use"]),
        (
            3,
            {**ring("spark1:0-spark2:1", "spark2:0-spark3:1", "spark3:0-spark1:1"), "ports": [0]},
            ["dgxspark_fabric.ports", "other ports"],
        ),
    ],
)
def test_a_cabling_that_cannot_be_is_refused(hosts: int, settings: dict[str, t.Any], parts: list[str]) -> None:
    told = refusal(hosts, settings)
    for part in parts:
        assert part in told


@pytest.mark.parametrize("topology", ["triangle", "ring"])
def test_one_port_makes_no_ring(topology: str) -> None:
    assert "takes two ports of each host, but port 0 is in use" in refusal(3, {"topology": topology}, ONE_PORT)


def test_a_cabling_given_in_any_order_is_a_ring() -> None:
    shuffled = ring("spark4:1-spark2:0", "spark1:0-spark3:0", "spark3:1-spark4:0", "spark2:1-spark1:1")
    assert len(make(4, shuffled, CLASS)["pairs"]) == 4


def test_like_ports_joined_in_a_triangle_are_advised_against() -> None:
    cables = [["spark1:0", "spark2:0"], ["spark2:1", "spark3:1"], ["spark3:0", "spark1:1"]]
    notes = [n for n in make(3, {"topology": "triangle", "cables": cables})["notes"] if "advised against" in n]
    assert [note.partition(" ")[0] for note in notes] == ["cable1", "cable2"]
    for plan in (make(3, {"topology": "triangle"}), make(2, {"topology": "direct"})):
        assert not any("advised against" in note for note in plan["notes"])


ROOT = pathlib.Path(__file__).resolve().parents[5]
WITH_PORTS = [each.name for each in TOPOLOGIES.values() if each.by != "nothing"]
LISTED = {  # the key in each file that lists topologies, and what it must list
    ("docs/schema/dgxspark-fabric.json", "properties.topology.enum"): list(TOPOLOGIES),
    ("docs/schema/fabric-report.json", "properties.topology.enum"): list(TOPOLOGIES),
    ("knowledge/schema/hardware.json", "properties.default_ports.required"): WITH_PORTS,
    ("knowledge/schema/hardware.json", "properties.default_ports.properties"): WITH_PORTS,
    ("knowledge/schema/bands.json", "properties.topologies.items.enum"): WITH_PORTS,
}


@pytest.mark.parametrize(("file", "key"), LISTED)
def test_a_schema_lists_the_topologies(file: str, key: str) -> None:
    value = json.loads((ROOT / file).read_text(encoding="utf-8"))
    for part in key.split("."):
        value = value[part]
    assert sorted(value) == sorted(LISTED[file, key]), (
        f"{file}: {key} lacks some of fabric/topologies.py: run python tools/topologies.py"
    )


def test_the_guide_has_a_row_for_each_topology() -> None:
    guide = (ROOT / "docs/docsite/rst/guide_fabric.rst").read_text(encoding="utf-8")
    for each in TOPOLOGIES.values():
        hosts = f"{each.least}" + ("" if each.least == each.most else " and more")
        row = f"* - ``{each.name}`` - {hosts} - {each.joins} "
        assert row in " ".join(guide.split()), f"guide_fabric.rst has no row {row}: run python tools/topologies.py"


@pytest.mark.parametrize("hosts", range(2, 9))
def test_hosts_with_cables_alone_have_one_topology(hosts: int) -> None:
    assert cabled(hosts).name == ("direct" if hosts == 2 else "triangle" if hosts == 3 else "ring")


def test_every_shipped_band_and_class_names_known_topologies() -> None:
    for entry in knowledge.load("bands").values():
        assert set(entry["topologies"]) <= set(WITH_PORTS)
    for entry in knowledge.load("hardware").values():
        assert set(entry["default_ports"]) == set(WITH_PORTS), f"{entry['origin']}: default_ports"
