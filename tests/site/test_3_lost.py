"""A group on real nodes that loses something: it goes down as a whole and comes back by itself, within a bound. Times are printed.

The bounds are the plan's own with room for emulated processors; nothing is run by Ansible between the loss and the return.
"""

from __future__ import annotations

import time

import pytest
from harness import NODES, lab, sh

from ansible_collections.dgxspark.cluster.tests.nodes.asked import NAMESPACE, UNFLUSHED, condition, until
from ansible_collections.dgxspark.cluster.tests.site.site import Served

pytestmark = pytest.mark.long
DOWN_S, BACK_S = 120, 600
NODE_BACK_S = 1200  # an emulated node takes minutes until its kubelet has its pods again
LOST = 3  # the rank on spark4


@pytest.fixture(autouse=True)
def serving(served: Served) -> None:
    if not served.ready():
        served.good()


def test_a_killed_engine_takes_its_group_down_and_it_comes_back(served: Served) -> None:
    served.recovers(LOST, "spark4", lambda: sh("spark4", "pkill -KILL -f [s]glang.launch_server"), DOWN_S, BACK_S)


def test_a_rebooted_node_comes_back_with_its_rank(served: Served) -> None:
    boot = sh("spark4", "cat /proc/sys/kernel/random/boot_id")
    began = time.monotonic()
    sh("spark4", "systemctl reboot", check=False)
    until("spark4 reboots: rank 0 has ended", DOWN_S, lambda: not condition(served.ranks()[0]), began)

    def again() -> bool:
        return served.ready() and sh("spark4", "cat /proc/sys/kernel/random/boot_id", check=False) not in ("", boot)

    until("spark4 reboots: the group is back", NODE_BACK_S, again, began)
    served.works()


def test_a_node_without_power_takes_the_group_down_until_it_is_back(served: Served) -> None:
    sh("spark4", UNFLUSHED)
    began = time.monotonic()
    lab("power", "off", "spark4")
    try:
        until("spark4 has no power: rank 0 has ended", DOWN_S, lambda: not condition(served.ranks()[0]), began)
        until(
            "spark4 has no power: rank 0 says so", DOWN_S, lambda: "rank 3 (spark4) is lost" in served.ended(0), began
        )
        until("spark4 has no power: the node is not ready", 240, lambda: not served.node_ready("spark4"), began)
        until("spark4 has no power: its rank is not ready", 240, lambda: not condition(served.ranks()[LOST]), began)
    finally:
        began = time.monotonic()
        lab("power", "on", "spark4")
    until(
        "spark4 has power again: the group is back",
        NODE_BACK_S,
        lambda: served.ready() and served.node_ready("spark4"),
        began,
    )
    served.works()


def test_the_restarts_of_a_group_leave_no_pod_behind(served: Served) -> None:
    pods = served.listed("pods", "-n", NAMESPACE)
    assert sorted(pod["metadata"]["name"] for pod in pods) == [f"serve-default-rank{n}-0" for n in range(len(NODES))]
