"""A group on real nodes that loses something: it goes down as a whole and comes back by itself, within a bound. Times are printed.

The bounds are the plan's own with room for emulated processors; nothing is run by Ansible between the loss and the return.
"""

from __future__ import annotations

import time

import pytest

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.nodes import lane
from ansible_collections.dgxspark.cluster.tests.nodes.asked import NAMESPACE, UNFLUSHED, condition, until
from ansible_collections.dgxspark.cluster.tests.nodes.cluster import Site

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(lane.why_not()), reason=lane.why_not()),
    pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN),
]
DOWN_S, BACK_S = 90, 420
NODE_BACK_S = 1200  # an emulated node takes minutes until its kubelet has its pods again


@pytest.fixture(autouse=True)
def serving(site: Site) -> None:
    if not site.ready():
        site.good()


def test_a_killed_engine_takes_its_group_down_and_it_comes_back(site: Site) -> None:
    site.recovers(1, "spark2", lambda: site.lane.ssh(2, "pkill -KILL -f sglang.launch_server"), DOWN_S, BACK_S)


def test_a_rebooted_node_comes_back_with_its_rank(site: Site) -> None:
    boot = site.lane.ssh(2, "cat /proc/sys/kernel/random/boot_id")
    began = time.monotonic()
    site.lane.ssh(2, "systemctl reboot", check=False)
    until("vm2 reboots: rank 0 has ended", DOWN_S, lambda: not condition(site.ranks()[0]), began)

    def again() -> bool:
        return site.ready() and site.lane.ssh(2, "cat /proc/sys/kernel/random/boot_id", check=False) not in ("", boot)

    until("vm2 reboots: the group is back", NODE_BACK_S, again, began)
    site.works()


def test_a_node_without_power_takes_the_group_down_until_it_is_back(site: Site) -> None:
    site.lane.ssh(2, UNFLUSHED)
    began = time.monotonic()
    command = site.lane.stop(2)
    try:
        until("vm2 has no power: rank 0 has ended", DOWN_S, lambda: not condition(site.ranks()[0]), began)
        until("vm2 has no power: rank 0 says so", DOWN_S, lambda: "rank 1 (spark2) is lost" in site.ended(0), began)
        until("vm2 has no power: the node is not ready", 120, lambda: not site.node_ready("vm2"), began)
        until("vm2 has no power: its rank is not ready", 120, lambda: not condition(site.ranks()[1]), began)
    finally:
        began = time.monotonic()
        site.lane.start_again(2, command)
    until("vm2 has power again: the group is back", NODE_BACK_S, lambda: site.ready() and site.node_ready("vm2"), began)
    site.works()


def test_the_restarts_of_a_group_leave_no_pod_behind(site: Site) -> None:
    pods = site.listed("pods", "-n", NAMESPACE)
    assert sorted(pod["metadata"]["name"] for pod in pods) == ["serve-default-rank0-0", "serve-default-rank1-0"]
