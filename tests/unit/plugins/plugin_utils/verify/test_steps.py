"""What each step says of what was seen, and which cause it names."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ansible_collections.dgxspark.cluster.tests.unit.verify_inputs import Cluster, statuses, step

TEST = "write/spark1:p0f0v0>spark2:p0f0v0"


def failed(report: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [result for result in step(report, name)["results"] if result["status"] == "fail"]


def only(report: dict[str, Any]) -> dict[str, Any]:
    """The one cause of a report."""
    assert len(report["causes"]) == 1, report["causes"]
    return report["causes"][0]  # type: ignore[no-any-return]


def test_a_healthy_fabric_passes_every_step() -> None:
    report = Cluster(4).outcome()
    assert report["verdict"] == "passed"
    assert set(statuses(report).values()) == {"pass"}
    assert list(statuses(report)) == ["link", "mtu", "arp", "gid", "rdma"]
    assert report["causes"] == []
    assert report["headline"].startswith("PASSED")
    # six pairs, four VFs: pings and ARP both ways; write both ways and a ping-pong
    assert [len(step(report, name)["results"]) for name in ("mtu", "arp", "rdma")] == [48, 48, 72]


# --- link -----------------------------------------------------------------------------------------------------------


def test_a_link_that_is_down_explains_all_that_fails_of_its_function() -> None:
    cluster = Cluster(4)
    for netdev in (cluster.function("spark3", 1)["netdev"], *(cluster.vf("spark3", 1, n)["netdev"] for n in (0, 1))):
        netdev |= {"carrier": False, "operstate": "lowerlayerdown", "speed_mbps": None}
    for peer in (1, 2, 4):
        for vf in (8, 9):
            cluster.arp[f"spark{peer}", f"10.100.{vf}.3"] = {"macs": []}
            cluster.ping[f"spark{peer}", f"10.100.{vf}.3"] = {"small": "no reply", "large": "not sent"}
            cluster.arp["spark3", f"10.100.{vf}.{peer}"] = {"macs": [], "error": "down"}
            cluster.ping["spark3", f"10.100.{vf}.{peer}"] = {"small": "down", "large": "not sent"}
    report = cluster.outcome()
    assert report["verdict"] == "failed"
    cause = only(report)
    assert cause["id"] == "link.down"
    assert cause["where"] == "spark3 p0f1"
    assert "no carrier" in cause["message"]
    assert report["headline"].startswith("FAILED: spark3 p0f1: the link of enP2p1s0f0np0 is down")
    assert statuses(report) == {"link": "fail", "mtu": "fail", "arp": "fail", "gid": "fail", "rdma": "not run"}
    follows = " ".join(cause["consequences"])
    for kind in ("link.down", "mtu.unreachable", "mtu.down", "arp.silent", "arp.not-sent", "gid.link-down"):
        assert kind in follows
    # the other function's paths are healthy
    assert {r["status"] for r in step(report, "rdma")["results"] if "p0f0" in r["subject"]} == {"pass"}


@pytest.mark.parametrize(
    ("change", "cause", "words"),
    [
        ({"carrier": False, "operstate": "down"}, "link.down", "state down, no carrier"),
        ({"operstate": "down", "carrier": None}, "link.down", "state down"),
        ({"speed_mbps": 100000}, "link.speed", "100 Gb/s; at least 200 Gb/s"),
        ({"mtu": 1500}, "link.mtu", "1500; the plan says 9000"),
    ],
)
def test_what_is_wrong_with_a_function(change: dict[str, Any], cause: str, words: str) -> None:
    cluster = Cluster(2)
    cluster.function("spark2", 0)["netdev"] |= change
    found = failed(cluster.outcome(), "link")
    assert [(result["subject"], result["cause"]) for result in found] == [("spark2 p0f0", cause)]
    assert words in found[0]["message"]
    assert found[0]["remedy"]


def test_a_speed_that_is_not_told_is_not_passed() -> None:
    cluster = Cluster(2)
    cluster.function("spark1", 0)["netdev"]["speed_mbps"] = None
    report = cluster.outcome()
    assert report["verdict"] == "incomplete"
    assert "reports no link speed" in report["headline"]


def test_a_function_that_is_gone() -> None:
    cluster = Cluster(2)
    del cluster.hosts["spark2"]["facts"]["functions"][1]
    report = cluster.outcome()
    cause = only(report)
    assert (cause["id"], cause["where"]) == ("function.missing", "spark2 p0f1")
    assert "enP2p1s0f0np0" in cause["message"]
    assert "cable" in cause["remedy"]
    assert {r["status"] for r in step(report, "rdma")["results"] if "p0f1" in r["subject"]} == {"not run"}


def test_vfs_that_are_missing() -> None:
    cluster = Cluster(2)
    cluster.function("spark2", 0).update(vfs=[], numvfs=0)
    cause = only(cluster.outcome())
    assert (cause["id"], cause["where"]) == ("vf.count", "spark2 p0f0")
    assert "0 VFs; the plan says 2" in cause["message"]
    assert any("vf.missing" in text for text in cause["consequences"])
    assert any("gid.vf-missing" in text for text in cause["consequences"])


def test_a_stranded_vf() -> None:
    cluster = Cluster(2)
    cluster.vf("spark1", 0, 1)["place"] = {"state": "stranded", "netns": "/run/netns/cni-9", "pids": 0}
    cause = only(cluster.outcome())
    assert (cause["id"], cause["where"]) == ("vf.stranded", "spark1 p0f0v1")
    assert "/run/netns/cni-9" in cause["message"]


# --- MTU ------------------------------------------------------------------------------------------------------------


def test_a_narrow_vf_is_named_by_its_side() -> None:
    cluster = Cluster(3)
    cluster.vf("spark3", 0, 0)["netdev"]["mtu"] = 1500
    for peer in (1, 2):
        cluster.ping[f"spark{peer}", "10.100.0.3"] = {"large": "no reply"}
        cluster.ping["spark3", f"10.100.0.{peer}"] = {"large": "too large"}
    report = cluster.outcome()
    cause = only(report)
    assert (cause["id"], cause["where"]) == ("link.mtu", "spark3 p0f0v0")
    assert "the MTU of enp1s0f0v0 is 1500; the plan says 9000" in cause["message"]
    assert {result["cause"] for result in failed(report, "mtu")} == {"mtu.interface"}
    assert all("the MTU of enp1s0f0v0 on spark3 is 1500" in result["message"] for result in failed(report, "mtu"))
    # RDMA negotiates its own, smaller MTU: it is run, and runs
    assert statuses(report)["rdma"] == "pass"


def test_a_narrow_switch_is_no_node_s_fault() -> None:
    cluster = Cluster(2)
    for asking, address in (("spark1", "10.100.0.2"), ("spark2", "10.100.0.1")):
        cluster.ping[asking, address] = {"large": "no reply"}
    cause = only(cluster.outcome())
    assert cause["id"] == "mtu.path"
    assert "both interfaces have the planned MTU" in cause["message"]
    assert "switch ports" in cause["remedy"]


def test_an_unreachable_peer_is_not_called_an_mtu_fault() -> None:
    cluster = Cluster(2)
    cluster.ping["spark1", "10.100.0.2"] = {"small": "no reply", "large": "not sent"}
    report = cluster.outcome()
    (found,) = failed(report, "mtu")
    assert found["cause"] == "mtu.unreachable"
    assert "not even with a small packet" in found["message"]
    reasons = {r["message"] for r in step(report, "rdma")["results"] if r["status"] == "not run"}
    assert reasons == {"spark1 p0f0v0 does not reach spark2 p0f0v0 at all (no reply)."}


@pytest.mark.parametrize("answers", [True, False])
def test_dropped_icmp_is_told_from_a_peer_that_is_not_there(answers: bool) -> None:
    """Its remedy must not lead to steps that pass."""
    cluster = Cluster(2)
    cluster.ping["spark1", "10.100.0.2"] = {"small": "no reply", "large": "not sent"}
    if not answers:
        cluster.arp["spark1", "10.100.0.2"] = {"macs": []}
    (found,) = failed(cluster.outcome(), "mtu")
    assert ("firewall" in found["remedy"]) is answers
    # The peer's route may be gone: it answers ARP, and its replies leave by another interface.
    assert ("`ip route get 10.100.0.1` must name enp1s0f0v0" in found["remedy"]) is answers
    assert ("ARP step" in found["remedy"]) is not answers


def test_a_vf_without_its_route_explains_that_nothing_comes_back() -> None:
    cluster = Cluster(2)
    cluster.vf("spark2", 0, 0)["netdev"]["routes"] = ["224.0.0.0/4"]
    cluster.vf("spark1", 0, 0)["netdev"]["routes"] = ["10.100.0.0/24"]
    for host, peer in ((1, 2), (2, 1)):
        cluster.ping[f"spark{host}", f"10.100.0.{peer}"] = {"small": "no reply", "large": "not sent"}
    cause = only(cluster.outcome())
    assert (cause["id"], cause["where"]) == ("link.route", "spark2 p0f0v0")
    assert "enp1s0f0v0 has its address, but no route to 10.100.0.0/24" in cause["message"]
    assert cause["remedy"].startswith("Run dgxspark.cluster.site --tags fabric")


def test_an_address_of_another_host_explains_that_nothing_answers() -> None:
    """A node that has its peer's address answers neither ARP nor ping of that peer."""
    cluster = Cluster(3)
    cluster.vf("spark2", 0, 1)["netdev"]["ipv4"].append("10.100.0.1/32")
    cluster.arp["spark1", "10.100.0.2"] = {"macs": []}
    for host, peer in ((1, 2), (2, 1)):
        cluster.ping[f"spark{host}", f"10.100.0.{peer}"] = {"small": "no reply", "large": "not sent"}
    cause = only(cluster.outcome())
    assert (cause["id"], cause["where"]) == ("link.address", "spark2 p0f0v0")
    assert "enp1s0f0v1 has 10.100.0.1/32, which the plan gives to spark1 p0f0v0" in cause["message"]
    assert cause["remedy"].startswith("`ip address del 10.100.0.1/32 dev enp1s0f0v1` on spark2")


@pytest.mark.parametrize(
    ("said", "cause", "words"),
    [
        ("not permitted", "mtu.refused", "nft list ruleset"),
        ("no route", "mtu.no-route", "`ip link set enp1s0f0v0 down; ip link set enp1s0f0v0 up`"),
    ],
)
def test_what_site_yml_does_not_mend_is_not_left_to_it(said: str, cause: str, words: str) -> None:
    """A firewall, or a route: the interface has its address and its MTU, so that site.yml has nothing to do."""
    cluster = Cluster(2)
    cluster.ping["spark1", "10.100.0.2"] = {"small": said, "large": "not sent"}
    (found,) = failed(cluster.outcome(), "mtu")
    assert found["cause"] == cause
    assert words in found["remedy"] and "cluster.site" not in found["remedy"]
    assert found["remedy"].startswith("On spark1, ")


# --- ARP ------------------------------------------------------------------------------------------------------------


def test_a_twin_that_answers_is_named_with_its_sysctl() -> None:
    cluster = Cluster(2)
    cluster.vf("spark1", 1, 0)["netdev"]["arp"]["arp_ignore"] = 0
    mine, twin = "02:d6:00:01:00:00", "02:d6:00:01:01:00"
    cluster.arp["spark2", "10.100.0.1"] = {"macs": [twin, mine]}
    report = cluster.outcome()
    cause = only(report)
    assert (cause["id"], cause["where"]) == ("arp.twin", "spark1 p0f1v0")
    assert "10.100.0.1 is spark1 p0f0v0's" in cause["message"]
    assert "spark1 p0f1v0 (enP2p1s0f0v0), the twin, answers for it: arp_ignore is 0 on enP2p1s0f0v0" in cause["message"]
    assert "arp_ignore=1" in cause["remedy"]
    assert statuses(report)["arp"] == "fail"


def test_the_function_itself_may_answer_too() -> None:
    cluster = Cluster(2)
    cluster.function("spark1", 0)["netdev"]["arp"]["arp_ignore"] = 0
    cluster.arp["spark2", "10.100.0.1"] = {"macs": ["02:d6:00:01:00:00", "94:6d:ae:00:01:00"]}
    cause = only(cluster.outcome())
    assert (cause["id"], cause["where"]) == ("arp.twin", "spark1 p0f0")
    assert "arp_ignore is 0 on enp1s0f0np0" in cause["message"]


def test_a_function_that_is_not_planned_is_the_node_s_all_the_same() -> None:
    """A second port on the same switch, which the plan does not use: site.yml does not touch it."""
    cluster = Cluster(2)
    unplanned = copy.deepcopy(cluster.function("spark1", 0)) | {"pci": "0002:01:00.1", "vfs": [], "numvfs": 0}
    unplanned["netdev"] |= {"name": "enP2p1s0f1np1", "mac": "94:6d:ae:00:01:09"}
    unplanned["netdev"]["arp"]["arp_ignore"] = 0
    cluster.hosts["spark1"]["facts"]["functions"].append(unplanned)
    cluster.arp["spark2", "10.100.0.1"] = {"macs": ["02:d6:00:01:00:00", "94:6d:ae:00:01:09"]}
    cause = only(cluster.outcome())
    assert (cause["id"], cause["where"]) == ("arp.twin", "spark1")
    assert "enP2p1s0f1np1" in cause["message"] and "arp_ignore is 0" in cause["message"]
    assert "net.ipv4.conf.enP2p1s0f1np1.arp_ignore=1" in cause["remedy"]
    assert "with the role" not in cause["remedy"]


def test_another_host_that_has_the_address() -> None:
    cluster = Cluster(3)
    cluster.arp["spark2", "10.100.0.1"] = {"macs": ["02:d6:00:03:00:00"]}
    cause = only(cluster.outcome())
    assert (cause["id"], cause["where"]) == ("arp.duplicate", "spark3 p0f0v0")
    assert "Remove the address 10.100.0.1 from spark3" in cause["remedy"]


def test_a_stranger_that_answers() -> None:
    cluster = Cluster(2)
    cluster.arp["spark2", "10.100.0.1"] = {"macs": ["02:D6:00:01:00:00", "00:11:22:33:44:55"]}
    cause = only(cluster.outcome())
    assert cause["id"] == "arp.stranger"
    assert "00:11:22:33:44:55" in cause["message"]


def test_the_planned_mac_is_compared_without_regard_to_case() -> None:
    cluster = Cluster(2)
    cluster.arp["spark2", "10.100.0.1"] = {"macs": ["02:D6:00:01:00:00"]}
    assert cluster.outcome()["verdict"] == "passed"


def test_another_mac_than_planned_on_the_vf_itself() -> None:
    cluster = Cluster(2)
    cluster.vf("spark1", 0, 0)["netdev"]["mac"] = "a6:f7:57:85:7b:7d"
    cluster.arp["spark2", "10.100.0.1"] = {"macs": ["a6:f7:57:85:7b:7d"]}
    report = cluster.outcome()
    cause = only(report)
    assert (cause["id"], cause["where"]) == ("vf.mac", "spark1 p0f0v0")
    assert failed(report, "arp")[0]["cause"] == "arp.mac"


def test_a_vf_with_another_mac_is_down_because_of_that_and_not_of_its_cable() -> None:
    cluster = Cluster(2)
    cluster.vf("spark1", 0, 1)["netdev"] |= {"mac": "02:00:00:00:77:01", "operstate": "down", "mtu": 1500}
    cause = only(cluster.outcome())
    assert (cause["id"], cause["where"]) == ("vf.mac", "spark1 p0f0v1")
    assert {"spark1 p0f0v1: link.down", "spark1 p0f0v1: link.mtu"} <= set(cause["consequences"])


def test_a_cable_that_is_out_changes_no_mac() -> None:
    cluster = Cluster(2)
    cluster.hosts["spark1"]["facts"]["functions"][0]["netdev"] |= {"operstate": "down", "carrier": False}
    cluster.vf("spark1", 0, 1)["netdev"] |= {"mac": "02:00:00:00:77:01", "operstate": "down"}
    found = {(cause["id"], cause["where"]) for cause in cluster.outcome()["causes"]}
    assert found == {("vf.mac", "spark1 p0f0v1"), ("link.down", "spark1 p0f0")}


# --- GID ------------------------------------------------------------------------------------------------------------


def test_a_vf_without_its_address_explains_ping_arp_and_rdma() -> None:
    cluster = Cluster(2)
    vf = cluster.vf("spark2", 0, 0)
    vf["netdev"]["ipv4"] = []
    del vf["hca"]["ports"][0]["gids"][1]
    cluster.ping["spark1", "10.100.0.2"] = {"small": "no reply", "large": "not sent"}
    cluster.ping["spark2", "10.100.0.1"] = {"small": "no address", "large": "not sent"}
    cluster.arp["spark1", "10.100.0.2"] = {"macs": []}
    report = cluster.outcome()
    cause = only(report)
    assert (cause["id"], cause["where"]) == ("gid.no-ipv4", "spark2 p0f0v0")
    assert "only link-local" in cause["message"]
    assert len(cause["consequences"]) == 3
    assert statuses(report) == {"link": "pass", "mtu": "fail", "arp": "fail", "gid": "fail", "rdma": "not run"}


def test_the_same_on_several_vfs_of_a_host_is_one_cause() -> None:
    cluster = Cluster(2)
    for function in (0, 1):
        vf = cluster.vf("spark2", function, 1)
        vf["netdev"]["ipv4"] = []
        del vf["hca"]["ports"][0]["gids"][1]
    cause = only(cluster.outcome())
    assert cause["where"] == "spark2 p0f0v1, p0f1v1"
    assert cause["seen"] == ("spark2 p0f0v1", "spark2 p0f1v1")
    assert "1 more like it" in cause["message"]


# --- RDMA -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "message", "cause"),
    [
        ("error", "ib_write_bw: Failed to modify QP 17 to RTR; Unable to Connect the HCA's", "rdma.no-route"),
        ("error", "ib_write_bw: Completion with error at client; Failed status 12: wr_id 0", "rdma.lost"),
        ("error", "ib_write_bw: Unable to find the Infiniband/RoCE device", "rdma.no-device"),
        ("error", "ib_write_bw: Couldn't allocate MR", "rdma.memory"),
        ("no peer", "no connection with 10.100.0.2 on TCP port 18600 within 60 s", "rdma.no-meeting"),
        ("busy", "another verify is testing there at the same time (the run of Bob)", "rdma.busy"),
        ("error", "ib_write_bw (server): Couldn't listen: Address already in use", "rdma.port"),
        ("hang", "ib_write_bw moved no data within 20 s.", "rdma.hang"),
        ("error", "ib_write_bw: something new", "rdma.failed"),
    ],
)
def test_why_a_test_fails(status: str, message: str, cause: str) -> None:
    cluster = Cluster(2)
    cluster.rdma[TEST] = {"status": status, "message": message, "figures": {}}
    report = cluster.outcome()
    (found,) = failed(report, "rdma")
    assert found["cause"] == cause
    assert message.rstrip(".") in found["message"]
    assert report["verdict"] == "failed"


def test_what_was_lost_and_sent_again_is_a_warning_at_its_place() -> None:
    cluster = Cluster(2)
    cluster.rdma[TEST] = {"lost": {"out_of_sequence": 3}}
    cluster.rdma["pingpong/spark1:p0f0v0>spark2:p0f0v0"] = {"lost": {"out_of_sequence": 1}}
    report = cluster.outcome()
    assert report["verdict"] == "passed"
    by_place = {each["where"]: each for each in report["warnings"]}
    assert list(by_place) == ["spark1 p0f0v0 errors", "spark2 p0f0v0 errors"]
    assert by_place["spark1 p0f0v0 errors"]["id"] == "rdma.repeated"
    assert "spark1 p0f0v0 during the RDMA tests: out_of_sequence +4" in by_place["spark1 p0f0v0 errors"]["message"]


@pytest.mark.parametrize(
    ("kind", "figures", "usual"), [("write", {"gbps": 0.0008}, "106.5"), ("pingpong", {"usec": 40000.0}, "1.6")]
)
def test_a_path_far_from_its_peers_is_a_warning_without_any_threshold(
    kind: str, figures: dict[str, float], usual: str
) -> None:
    cluster = Cluster(4)
    cluster.thresholds["rdma"]["write"]["min_gbps"] = [{"mtu": 9000, "gbps": 0}]
    cluster.rdma[f"{kind}/spark1:p0f0v0>spark2:p0f0v0"] = {"figures": figures}
    report = cluster.outcome()
    (told,) = report["warnings"]
    assert told["id"] == "rdma.outlier" and report["verdict"] == "passed"
    assert "spark1 p0f0v0 > spark2 p0f0v0" in told["message"] and usual in told["message"]


def test_paths_that_are_alike_or_few_are_no_outliers() -> None:
    assert Cluster(4).outcome()["warnings"] == []


def test_one_trip_during_which_a_node_stood_still_makes_no_outlier() -> None:
    cluster = Cluster(4)
    stalled = {"usec": 40000.0, "usec_typical": 1.7, "usec_max": 790000.0}
    cluster.rdma["pingpong/spark1:p0f0v0>spark2:p0f0v0"] = {"figures": stalled}
    assert cluster.outcome()["warnings"] == []


@pytest.mark.parametrize(("mtu", "gbps", "status"), [(9000, 99.9, "fail"), (9000, 100.0, "pass"), (1500, 93.0, "pass")])
def test_bandwidth_is_measured_against_that_of_the_mtu(mtu: int, gbps: float, status: str) -> None:
    cluster = Cluster(2)
    for host in cluster.plan["hosts"].values():
        host["functions"][0]["vfs"][0]["mtu"] = mtu
    cluster.rdma[TEST] = {"figures": {"gbps": gbps}}
    report = cluster.outcome()
    (found,) = [r for r in step(report, "rdma")["results"] if r["subject"] == "spark1 p0f0v0 > spark2 p0f0v0 write"]
    assert found["status"] == status
    assert found["figures"]["gbps"] == gbps
    assert (found["cause"] == "rdma.slow") == (status == "fail")


@pytest.mark.parametrize(
    ("figures", "status"),
    [
        ({"gbps": 0.0}, "fail"),
        ({"gbps": 0.004}, "pass"),
        ({"gbps": float("nan"), "iterations": 20}, "fail"),
        ({"gbps": 0.0, "iterations": 0}, "fail"),
        ({"gbps": 0.0, "iterations": 20}, "pass"),  # the emulated node stalled: the program's six decimals are all 0
    ],
)
def test_where_no_bandwidth_is_due_data_must_arrive_all_the_same(figures: dict[str, float], status: str) -> None:
    cluster = Cluster(2)
    cluster.thresholds["rdma"]["write"]["min_gbps"] = [{"mtu": 1500, "gbps": 0}]
    cluster.rdma[TEST] = {"figures": figures}
    report = cluster.outcome()
    assert statuses(report)["rdma"] == status


def test_a_slow_function_is_slow_to_every_peer() -> None:
    """If two peers are slow while others are fine, the cause is the one function that they share."""
    cluster = Cluster(3)
    for peer in ("spark1", "spark2"):
        for vf in (0, 1):
            for test in (f"write/{peer}:p0f1v{vf}>spark3:p0f1v{vf}", f"write/spark3:p0f1v{vf}>{peer}:p0f1v{vf}"):
                cluster.rdma[test] = {"figures": {"gbps": 55.0}}
            cluster.rdma[f"pingpong/{peer}:p0f1v{vf}>spark3:p0f1v{vf}"] = {"figures": {"usec": 99.0}}
    cluster.thresholds["rdma"]["pingpong"]["max_usec"] = 10
    cause = only(cluster.outcome())
    assert (cause["id"], cause["where"]) == ("rdma.slow", "spark3 p0f1")


def test_a_slow_link_explains_slow_rdma() -> None:
    cluster = Cluster(2)
    cluster.function("spark2", 0)["netdev"]["speed_mbps"] = 40000
    cluster.rdma[TEST] = {"figures": {"gbps": 38.0}}
    cause = only(cluster.outcome())
    assert (cause["id"], cause["where"]) == ("link.speed", "spark2 p0f0")
    assert cause["consequences"] == ("spark1 p0f0v0 > spark2 p0f0v0 write: rdma.slow",)


def test_without_perftest_the_fabric_is_not_proven() -> None:
    cluster = Cluster(2)
    cluster.programs["spark2"] = dict.fromkeys(cluster.programs["spark2"])
    report = cluster.outcome()
    assert report["verdict"] == "incomplete"
    assert report["headline"].startswith("INCOMPLETE: rdma")
    assert "ib_write_bw is not installed on spark2: apt install perftest" in report["headline"]


def test_a_test_whose_other_end_did_not_run_is_not_run() -> None:
    cluster = Cluster(2)
    cluster.probe()
    cluster.meet()
    cluster.hosts["spark2"] |= {"rdma": [], "rdma_error": "Data could not be sent to remote host"}
    report = cluster.judge()
    assert report["verdict"] == "incomplete"
    assert "did not run on spark2: Data could not be sent to remote host" in report["headline"]
