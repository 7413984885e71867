"""The role's own objects on real nodes: a Running rank on each, with its VFs inside; unchanged by a second run; switched.

Kubelet, containerd, runc, the API server, the scheduler and the CNI plugins host-device, static and tuning are real (1.20.2 and
Debian's). Stand-ins: NVIDIA's device plugin and the engine; Multus, the SR-IOV device plugin and flannel's CNI plugin where real ones
are not given (real.py).
Nothing is sent over RDMA: the stand-in for Multus makes the VFs' soft-RoCE devices follow them into pods, for what reads GIDs.
"""

from __future__ import annotations

import re

import pytest

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.nodes import lane
from ansible_collections.dgxspark.cluster.tests.nodes.asked import condition, restarts
from ansible_collections.dgxspark.cluster.tests.nodes.cluster import NODES, TWO, Site

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(lane.why_not()), reason=lane.why_not()),
    pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN),
]


def test_one_running_rank_on_every_node(site: Site) -> None:
    assert site.good() > 0
    ranks = site.ranks()
    assert {rank: pod["spec"]["nodeName"] for rank, pod in ranks.items()} == {0: "vm1", 1: "vm2"}
    assert all(condition(pod) for pod in ranks.values())
    assert not any(restarts(pod) for pod in ranks.values())


def test_each_rank_has_its_vfs_with_address_mtu_and_arp_settings(site: Site) -> None:
    site.has_its_vfs()
    # On the nodes the VFs of index 0 are gone, those of index 1 are not.
    for node in NODES:
        there = site.lane.ssh(node, "ls /sys/class/net")
        assert re.findall(r"enp\ds0v\d", there) == ["enp1s0v1", "enp2s0v1"]


def test_the_api_gives_tokens_and_the_logs_say_what_was_done(site: Site) -> None:
    site.gives_tokens()


def test_ranks_are_unprivileged_and_hold_what_the_plugins_gave(site: Site) -> None:
    site.is_unprivileged()


def test_a_second_run_changes_nothing_while_they_serve(site: Site) -> None:
    before = {pod["metadata"]["uid"]: restarts(pod) for pod in site.ranks().values()}
    assert site.good() == 0
    assert site.good("--check") == 0
    assert {pod["metadata"]["uid"]: restarts(pod) for pod in site.ranks().values()} == before
    assert all(condition(pod) for pod in site.ranks().values())


def test_a_switch_serves_the_other_model_behind_the_same_service(site: Site) -> None:
    site.switches(lambda: site.good(k8s_dgx_model_profile=TWO))
