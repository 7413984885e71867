"""Absent gives the VFs back; teardown goes all the way back to what the nodes were."""

from __future__ import annotations

import json
import time

import pytest
from harness import NODES, sh

from ansible_collections.dgxspark.cluster.tests.nodes.asked import NAMESPACE, condition, until
from ansible_collections.dgxspark.cluster.tests.site.site import Served, tree

pytestmark = pytest.mark.long
VFS = {"enp1s0f0v0": 9000, "enp1s0f0v1": 9000, "enP2p1s0f0v0": 9000, "enP2p1s0f0v1": 9000}


def vfs(node: str) -> dict[str, int]:
    """Return the VFs of a node with their MTU."""
    links = json.loads(sh(node, "ip -json link"))
    return {link["ifname"]: link["mtu"] for link in links if "f0v" in link["ifname"]}


def test_absent_takes_the_pods_away_and_gives_the_vfs_back(served: Served) -> None:
    if not served.ready():
        served.good()
    began = time.monotonic()
    assert served.serve(k8s_dgx_state="absent") > 0
    assert not served.ranks()
    for node in NODES:
        until(f"absent: {node} has its VFs, with their MTU", 60, lambda node=node: vfs(node) == VFS, began)
    for kind in ("statefulsets", "services", "configmaps", "serviceaccounts"):
        names = [each["metadata"]["name"] for each in served.listed(kind, "-n", NAMESPACE)]
        assert not [name for name in names if name.startswith("serve-")]
    assert served.serve(k8s_dgx_state="absent") == 0


def test_teardown_goes_all_the_way_back(served: Served) -> None:
    assert served.good(playbook="playbooks/teardown.yml") > 0
    if served.elsewhere:  # the limit leaves it out: it stays, and has forgotten the Sparks
        assert [node["metadata"]["name"] for node in served.listed("nodes") if condition(node)] == [served.server]
        assert served.good(playbook="playbooks/teardown.yml", limit=served.server) > 0
    assert {node: tree(node) for node in served.all} == served.before
    for node in served.all:
        assert vfs(node) == {}
        assert sh(node, "pgrep -c 'kube|etcd|containerd'", check=False) == "0"
        assert "KUBE" not in sh(node, "iptables-save")
        assert "cni0" not in sh(node, "ls /sys/class/net")
    assert not served.kubeconfig.exists()
    assert served.good(playbook="playbooks/teardown.yml", limit="all") == 0
