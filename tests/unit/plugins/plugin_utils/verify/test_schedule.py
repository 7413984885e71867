"""Who meets whom, and when."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.verify.schedule import probes, rdma_rounds, rounds
from ansible_collections.dgxspark.cluster.tests.support.properties import examples
from ansible_collections.dgxspark.cluster.tests.unit.verify_inputs import Cluster


@settings(deadline=None)
@given(st.integers(0, 64))
def test_all_meet_all_once_in_the_fewest_rounds(number: int) -> None:
    hosts = [f"h{n}" for n in range(number)]
    pairs = list(itertools.combinations(hosts, 2))
    made = rounds(pairs, hosts)
    met = [pair for meeting in made for pair in meeting]
    assert sorted(met) == sorted(pairs)
    for meeting in made:
        present = [host for pair in meeting for host in pair]
        assert len(present) == len(set(present))
    # 1-factorisation of the complete graph: n - 1 rounds for even n, n for odd
    assert len(made) == (0 if number < 2 else number - 1 + number % 2)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_any_pairs_meet_once_and_nobody_has_two_peers(data: st.DataObject) -> None:
    hosts = [f"h{n}" for n in range(data.draw(st.integers(2, 16)))]
    pairs = data.draw(st.sets(st.sampled_from(list(itertools.combinations(hosts, 2)))))
    turned = {pair[::-1] if data.draw(st.booleans()) else pair for pair in pairs}
    made = rounds(turned, hosts)
    assert sorted(pair for meeting in made for pair in meeting) == sorted(pairs)
    peers = {host: sum(host in pair for pair in pairs) for host in hosts}
    for meeting in made:
        assert meeting
        present = [host for pair in meeting for host in pair]
        assert len(present) == len(set(present))
    assert len(made) <= max(0, 2 * max(peers.values()) - 1)


@pytest.mark.parametrize(("number", "most"), [(4, 2), (5, 3), (12, 2), (13, 3)])
def test_a_ring_needs_two_rounds_or_three_not_one_for_each_host(number: int, most: int) -> None:
    hosts = [f"h{n}" for n in range(number)]
    assert len(rounds(list(zip(hosts, [*hosts[1:], hosts[0]], strict=True)), hosts)) == most


def test_every_vf_probes_every_peer_both_ways() -> None:
    cluster = Cluster(3)
    made = probes(cluster.evidence())
    assert sorted(made) == ["spark1", "spark2", "spark3"]
    for asked in made.values():
        # two peers, two functions, two VFs
        assert len(asked["arp"]) == len(asked["ping"]) == 8
        assert {ping["mtu"] for ping in asked["ping"]} == {9000}
    assert {"netdev": "enp1s0f0v0", "source": "10.100.0.1", "address": "10.100.0.2"} in made["spark1"]["arp"]
    assert {"netdev": "enp1s0f0v0", "source": "10.100.0.2", "address": "10.100.0.1"} in made["spark2"]["arp"]


def test_nothing_is_sent_to_who_is_not_there() -> None:
    cluster = Cluster(4)
    cluster.limit("spark1", "spark2", "spark3")
    cluster.lose("spark3")
    cluster.vf("spark2", 1, 0)["place"] = {"state": "pod", "netns": "/run/netns/cni-1", "pids": 3}
    made = probes(cluster.evidence())
    assert sorted(made) == ["spark1", "spark2"]
    assert {ping["address"] for ping in made["spark1"]["ping"]} == {"10.100.0.2", "10.100.1.2", "10.100.9.2"}


def test_no_rdma_before_the_probes() -> None:
    assert rdma_rounds(Cluster(2).evidence()) == []


def test_both_ends_of_a_test_agree() -> None:
    cluster = Cluster(4)
    cluster.vf("spark2", 0, 0)["hca"]["ports"][0]["gids"][1]["index"] = 5
    cluster.vf("spark2", 0, 0)["hca"]["ports"][0]["active_mtu"] = 1024
    cluster.probe()
    made = rdma_rounds(cluster.evidence())
    assert len(made) == 3
    seen = 0
    for tests in made:
        by_id: dict[str, list[dict[str, object]]] = {}
        for name, ends in tests.items():
            assert len({end["port"] for end in ends}) == len(ends)
            for end in ends:
                by_id.setdefault(end["id"], []).append({"host": name, **end})
        for one, other in by_id.values():
            assert {one["role"], other["role"]} == {"client", "server"}
            assert one["address"] == other["peer"]
            assert one["peer"] == other["address"]
            for key in ("program", "port", "size", "path_mtu"):
                assert one[key] == other[key]
            seen += 1
            for end in (one, other):
                odd = end["host"] == "spark2" and end["hca"] == "rocep1s0f0v0"
                assert end["gid_index"] == (5 if odd else 3)
                assert end["path_mtu"] == (1024 if "spark2:p0f0v0" in str(end["id"]) else 4096)
    # six pairs, four VFs; write both ways and one ping-pong
    assert seen == 6 * 4 * 3


def test_a_host_has_its_tests_in_the_order_of_its_peer() -> None:
    cluster = Cluster(3)
    cluster.probe()
    for tests in rdma_rounds(cluster.evidence()):
        one, other = tests.values()
        assert [end["id"] for end in one] == [end["id"] for end in other]


def test_the_fallback_is_used_where_both_ends_have_nothing_else() -> None:
    cluster = Cluster(2)
    cluster.programs["spark1"] = {
        "ib_write_bw": None,
        "ib_send_lat": None,
        "ibv_rc_pingpong": "/usr/bin/ibv_rc_pingpong",
    }
    cluster.programs["spark2"]["ibv_rc_pingpong"] = "/usr/bin/ibv_rc_pingpong"
    cluster.probe()
    (tests,) = rdma_rounds(cluster.evidence())
    assert {end["program"] for ends in tests.values() for end in ends} == {"ibv_rc_pingpong"}
    assert {end.get("iterations") for ends in tests.values() for end in ends} == {1000}
