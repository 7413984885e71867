"""The role's own objects on real nodes: a Running rank on each, with its VFs inside; unchanged by a second run; switched.

Kubelet, containerd, runc, the API server, the scheduler and the CNI plugins host-device, static and tuning are real (1.20.2 and
Debian's). Stand-ins: Multus, both device plugins, the engine. RDMA in pods is not run: soft-RoCE dies with the move.
"""

from __future__ import annotations

import json
import re

import pytest

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.nodes import lane
from ansible_collections.dgxspark.cluster.tests.nodes.cluster import NAMESPACE, NODES, TWO, Site, condition, restarts

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(lane.why_not()), reason=lane.why_not()),
    pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN),
]
RAILS = ("net1", "net2")
SYSCTLS = {"arp_ignore": "1", "arp_announce": "2", "rp_filter": "2"}


def planned(site: Site) -> dict[int, dict[str, str]]:
    """Return each rank's planned addresses by interface, from what its supervisor is told."""
    launch = next(each for each in site.listed("configmaps", "-n", NAMESPACE) if "launch" in each["metadata"]["name"])
    ranks = {rank: json.loads(launch["data"][f"rank{rank}.json"]) for rank in (0, 1)}
    return {
        rank: {rail["interface"]: f"{rail['address']}/{rail['prefix']}" for rail in config["rails"]}
        for rank, config in ranks.items()
    }


def test_one_running_rank_on_every_node(site: Site) -> None:
    assert site.good() > 0
    ranks = site.ranks()
    assert {rank: pod["spec"]["nodeName"] for rank, pod in ranks.items()} == {0: "vm1", 1: "vm2"}
    assert all(condition(pod) for pod in ranks.values())
    assert not any(restarts(pod) for pod in ranks.values())


def test_each_rank_has_its_vfs_with_address_mtu_and_arp_settings(site: Site) -> None:
    addresses = planned(site)
    for rank in site.ranks():
        links = json.loads(site.inside(rank, "ip", "-json", "address"))
        seen = {link["ifname"]: link for link in links}
        for rail in RAILS:
            (own,) = [each for each in seen[rail]["addr_info"] if each["family"] == "inet"]
            assert f"{own['local']}/{own['prefixlen']}" == addresses[rank][rail]
            assert seen[rail]["mtu"] == 9000
            # A VF itself, not something on top of one.
            assert "igbvf" in site.inside(rank, "readlink", f"/sys/class/net/{rail}/device/driver")
            for name, value in SYSCTLS.items():
                assert site.inside(rank, "cat", f"/proc/sys/net/ipv4/conf/{rail}/{name}") == value
    # On the nodes the VFs of index 0 are gone, those of index 1 are not.
    for node in NODES:
        there = site.lane.ssh(node, "ls /sys/class/net")
        assert re.findall(r"enp\ds0v\d", there) == ["enp1s0v1", "enp2s0v1"]


def test_the_api_gives_tokens_and_the_logs_say_what_was_done(site: Site) -> None:
    assert site.ask("/v1/models")["data"][0]["id"] == "dgxspark/scripted-one"
    said = site.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "five"}]})
    assert said["choices"][0]["message"]["content"] == "five six seven eight nine"
    assert said["usage"]["completion_tokens"]
    logs = site.kubectl("logs", "-n", NAMESPACE, "serve-default-rank0-0")
    assert "all 2 ranks are here" in logs
    assert "serving; the first tokens: ' six seven eight nine'" in logs


def test_ranks_are_unprivileged_and_hold_what_the_plugins_gave(site: Site) -> None:
    for rank, pod in site.ranks().items():
        status = dict(line.split(":\t", 1) for line in site.inside(rank, "cat", "/proc/self/status").splitlines())
        assert status["CapBnd"].lstrip("0") == f"{1 << 14:x}"  # IPC_LOCK alone (linux/capability.h)
        assert status["NoNewPrivs"] == "1"
        environment = site.inside(rank, "env")
        assert len(re.findall(r"^PCIDEVICE_DGXSPARK_CLUSTER_P0F\dV0=0000:", environment, re.M)) == len(RAILS)
        assert not re.search("^SERVE_DEFAULT.*=tcp", environment, re.M)
        told = json.loads(pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"])
        assert [each["interface"] for each in told] == ["eth0", *RAILS]


def test_a_second_run_changes_nothing_while_they_serve(site: Site) -> None:
    before = {pod["metadata"]["uid"]: restarts(pod) for pod in site.ranks().values()}
    assert site.good() == 0
    assert site.good("--check") == 0
    assert {pod["metadata"]["uid"]: restarts(pod) for pod in site.ranks().values()} == before
    assert all(condition(pod) for pod in site.ranks().values())


def test_a_switch_serves_the_other_model_behind_the_same_service(site: Site) -> None:
    before = {pod["metadata"]["uid"] for pod in site.ranks().values()}
    service = json.loads(site.kubectl("get", "service", "-n", NAMESPACE, "serve-default", "-o", "json"))["metadata"][
        "uid"
    ]
    assert site.good(k8s_dgx_model_profile=TWO) > 0
    ranks = site.ranks()
    assert not before & {pod["metadata"]["uid"] for pod in ranks.values()}
    assert all(condition(pod) for pod in ranks.values())
    assert site.ask("/v1/models")["data"][0]["id"] == "dgxspark/scripted-two"
    after = json.loads(site.kubectl("get", "service", "-n", NAMESPACE, "serve-default", "-o", "json"))["metadata"][
        "uid"
    ]
    assert after == service
