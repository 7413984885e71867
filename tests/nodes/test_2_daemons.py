"""The platform's daemons restart, and a node is drained and restarted as for a new K3s, while ranks serve.

Which daemons are real is printed (cluster.STAND_IN). Real K3s is not run: kubelet and containerd are restarted on their own.
"""

from __future__ import annotations

import pytest

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.nodes import lane, real
from ansible_collections.dgxspark.cluster.tests.nodes.asked import Plain, condition, restarts, until
from ansible_collections.dgxspark.cluster.tests.nodes.cluster import VFS, Site

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(lane.why_not()), reason=lane.why_not()),
    pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN),
]
DAEMON_S, BACK_S = 240, 600


@pytest.fixture(autouse=True)
def serving(site: Site) -> None:
    if not site.ready():
        site.good()


def told(site: Site) -> dict[str, tuple[int, bool]]:
    """Return how often each rank's container has restarted, and whether it is ready."""
    return {pod["metadata"]["uid"]: (restarts(pod), condition(pod)) for pod in site.ranks().values()}


def uids(pods: dict[str, Plain]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods.values()}


@pytest.mark.parametrize("part", ["multus", "sriov_device_plugin"])
def test_a_daemon_that_starts_again_leaves_ranks_alone(site: Site, part: str) -> None:
    ranks, before = told(site), site.daemons(part)
    assert set(before) == {"vm1", "vm2"}
    site.kubectl("delete", "pods", "-n", "kube-system", "-l", f"dgxspark.cluster/part={part}")

    def again() -> bool:
        now = site.daemons(part)
        return set(now) == set(before) and not uids(before) & uids(now) and all(map(condition, now.values()))

    until(f"{part}: its pods are there again and ready", DAEMON_S, again)
    for node in before:
        until(f"{part}: {node} offers its VFs", DAEMON_S, lambda node=node: site.offers(node) == VFS)
    assert told(site) == ranks
    site.has_its_vfs()
    site.works()


def test_the_next_pod_of_a_rank_has_its_vfs_by_daemons_that_did_not_see_the_one_before(site: Site) -> None:
    site.renew(1, DAEMON_S)
    until("rank 1 has a new pod: the group is back", BACK_S, site.ready)
    site.has_its_vfs()
    site.works()


def test_no_pod_leaves_an_address_behind(site: Site) -> None:
    """On K3s's network. A plain bridge leaks one with each pod, because of upstream's #1449 (test_5)."""
    if reason := real.why_not("DGXSPARK_REAL_FLANNEL"):
        pytest.skip(reason)
    assert not any(site.leaked().values())


def test_a_node_is_drained_of_its_rank_alone_and_its_kubelet_and_containerd_start_again(site: Site) -> None:
    parts = ("multus", "sriov_device_plugin", "nvidia_device_plugin")
    before = {part: uids(site.daemons(part)) for part in parts}
    rank = site.ranks()[1]["metadata"]["uid"]
    site.drain("spark2", "vm2")
    assert 1 not in site.ranks() or site.ranks()[1]["metadata"]["uid"] != rank
    assert {part: uids(site.daemons(part)) for part in parts} == before
    site.lane.ssh(2, "systemctl restart containerd kubelet")
    site.kubectl("uncordon", "vm2")
    until("vm2 is drained, and its kubelet starts again: the group is back", BACK_S, site.ready)
    site.has_its_vfs()
    site.works()


def test_a_run_after_all_that_changes_nothing(site: Site) -> None:
    before = told(site)
    assert site.good() == 0
    assert told(site) == before
