"""What is missing on real nodes is named within a minute, by kube_wait; absent gives everything back."""

from __future__ import annotations

import json
import time

import pytest

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.nodes import lane
from ansible_collections.dgxspark.cluster.tests.nodes.asked import MINUTE, NAMESPACE, condition, plain, until
from ansible_collections.dgxspark.cluster.tests.nodes.cluster import NODES, Site

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(lane.why_not()), reason=lane.why_not()),
    pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN),
]


@pytest.fixture(autouse=True)
def serving(site: Site) -> None:
    if not site.ready():
        site.good()


def test_a_missing_image_is_named_and_the_model_before_serves_on(site: Site) -> None:
    before = site.ask("/v1/models")["data"][0]["id"]
    code, said, _changed = site.run(k8s_dgx_image="localhost/absent:lab")
    assert code != 0
    assert "spark2: it is missing, and k8s_dgx_serving.image_pull is Never" in plain(said)
    assert "Nothing was stopped." in plain(said)
    assert not [each for each in site.listed("pods", "-n", NAMESPACE) if "-pull-" in each["metadata"]["name"]]
    assert all(condition(pod) for pod in site.ranks().values())
    assert site.ask("/v1/models")["data"][0]["id"] == before


def take_the_vf(site: Site) -> None:
    site.lane.ssh(2, "echo 0 >/sys/class/net/enp2s0/device/sriov_numvfs")


def test_a_missing_attachment_is_named_within_a_minute(site: Site) -> None:
    site.misses_an_attachment("vm2", site.good, 180)


def test_a_missing_vf_is_named_within_a_minute(site: Site) -> None:
    site.misses_a_vf("vm2", lambda: take_the_vf(site), site.good, 180)


def test_a_vf_that_a_pod_lost_is_named_within_a_minute(site: Site) -> None:
    site.loses_a_vf("vm2", lambda: take_the_vf(site), site.good, 180)


def test_absent_takes_the_pods_away_and_gives_the_vfs_back(site: Site) -> None:
    began = time.monotonic()
    assert site.good(k8s_dgx_state="absent") > 0
    assert not site.ranks()
    for node in NODES:
        until(
            f"absent: vm{node} has its VFs",
            MINUTE,
            lambda node=node: set(_vfs(site, node)) == {"enp1s0v0", "enp1s0v1", "enp2s0v0", "enp2s0v1"},
            began,
        )
        print(f"vm{node}: {_vfs(site, node)}")
    for kind in ("statefulsets", "services", "configmaps", "serviceaccounts"):
        assert not [
            each for each in site.listed(kind, "-n", NAMESPACE) if each["metadata"]["name"].startswith("serve-")
        ]
    assert site.good(k8s_dgx_state="absent") == 0
    # Nothing that a pod had stays on a node.
    for node in NODES:
        assert not site.lane.ssh(
            node, "ctr -n k8s.io containers list -q 'labels.\"io.kubernetes.pod.namespace\"==dgx-serving'"
        )


def _vfs(site: Site, node: int) -> dict[str, int]:
    """Return the VFs of a node with their MTU."""
    links = json.loads(site.lane.ssh(node, "ip -json link"))
    return {link["ifname"]: link["mtu"] for link in links if link["ifname"][:3] == "enp" and "v" in link["ifname"]}
