"""A group on real nodes that loses something: it goes down as a whole and comes back by itself, within a bound. Times are printed.

The bounds are the plan's own with room for emulated processors; nothing is run by Ansible between the loss and the return.
"""

from __future__ import annotations

import time

import pytest

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.nodes import lane
from ansible_collections.dgxspark.cluster.tests.nodes.cluster import NAMESPACE, Site, condition, restarts, until

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(lane.why_not()), reason=lane.why_not()),
    pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN),
]
DOWN_S, BACK_S = 90, 420


@pytest.fixture(autouse=True)
def serving(site: Site) -> None:
    ranks = site.ranks()
    if len(ranks) < 2 or not all(condition(pod) for pod in ranks.values()):
        site.good()


def ready(site: Site) -> bool:
    ranks = site.ranks()
    return len(ranks) == 2 and all(condition(pod) for pod in ranks.values())


def ended(site: Site, rank: int) -> str:
    """Return the last word of a rank's container before this one."""
    states = [each.get("lastState", {}) for each in site.ranks()[rank]["status"].get("containerStatuses", ())]
    return str(next((state["terminated"].get("message", "") for state in states if "terminated" in state), ""))


def works(site: Site) -> None:
    assert site.ask("/v1/completions", {"prompt": "5", "max_tokens": 4})["usage"]["completion_tokens"] == 4


def test_a_killed_engine_takes_its_group_down_and_it_comes_back(site: Site) -> None:
    before = {rank: restarts(pod) for rank, pod in site.ranks().items()}
    began = time.monotonic()
    site.lane.ssh(2, "pkill -KILL -f sglang.launch_server")
    until("engine of rank 1 killed: the group is down", DOWN_S, lambda: not ready(site), began)

    def again() -> bool:
        ranks = site.ranks()
        return ready(site) and all(restarts(ranks[rank]) > before[rank] for rank in before)

    until("engine of rank 1 killed: the group is back", BACK_S, again, began)
    assert "was killed by SIGKILL" in ended(site, 1)
    assert "rank 1 (spark2) is lost: rank 1: the engine was killed by SIGKILL" in ended(site, 0)
    works(site)


def test_a_rebooted_node_comes_back_with_its_rank(site: Site) -> None:
    boot = site.lane.ssh(2, "cat /proc/sys/kernel/random/boot_id")
    began = time.monotonic()
    site.lane.ssh(2, "systemctl reboot", check=False)
    until("vm2 reboots: rank 0 has ended", DOWN_S, lambda: not condition(site.ranks()[0]), began)

    def again() -> bool:
        return ready(site) and site.lane.ssh(2, "cat /proc/sys/kernel/random/boot_id", check=False) not in ("", boot)

    until("vm2 reboots: the group is back", BACK_S, again, began)
    works(site)


def test_a_node_without_power_takes_the_group_down_until_it_is_back(site: Site) -> None:
    began = time.monotonic()
    command = site.lane.stop(2)
    until("vm2 has no power: rank 0 has ended", DOWN_S, lambda: not condition(site.ranks()[0]), began)
    assert "rank 1 (spark2) is lost" in ended(site, 0)
    until("vm2 has no power: the node is not ready", 120, lambda: _status(site, "vm2") != "True", began)
    until("vm2 has no power: its rank is not ready", 120, lambda: not condition(site.ranks()[1]), began)
    began = time.monotonic()
    site.lane.start_again(2, command)
    until(
        "vm2 has power again: the group is back", BACK_S, lambda: ready(site) and _status(site, "vm2") == "True", began
    )
    works(site)


def _status(site: Site, node: str) -> str:
    (found,) = [each for each in site.listed("nodes") if each["metadata"]["name"] == node]
    return next(each["status"] for each in found["status"]["conditions"] if each["type"] == "Ready")


def test_the_restarts_of_a_group_leave_no_pod_behind(site: Site) -> None:
    pods = site.listed("pods", "-n", NAMESPACE)
    assert sorted(pod["metadata"]["name"] for pod in pods) == ["serve-default-rank0-0", "serve-default-rank1-0"]
