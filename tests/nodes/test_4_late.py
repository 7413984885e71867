"""VFs that appear after the SR-IOV device plugin has looked for them; and everything of ours is removed.

Which daemons are real is printed (cluster.STAND_IN).
"""

from __future__ import annotations

import pytest

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.nodes import lane
from ansible_collections.dgxspark.cluster.tests.nodes.asked import condition, plain, until
from ansible_collections.dgxspark.cluster.tests.nodes.cluster import NODES, VFS, Site

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(lane.why_not()), reason=lane.why_not()),
    pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN),
]
DAEMON_S = 240
OURS = "app.kubernetes.io/managed-by=dgxspark.cluster"


def test_late_vfs_are_offered_by_a_plugin_that_is_started_again_and_their_rank_comes_up(site: Site) -> None:
    site.good(k8s_dgx_state="absent")
    site.lane.ssh(2, "echo 0 >/sys/class/net/enp2s0/device/sriov_numvfs")
    first = site.daemons("sriov_device_plugin")
    site.kubectl("delete", "pod", "-n", "kube-system", first["vm2"]["metadata"]["name"])
    until(
        "vm2 offers the VFs of one function alone",
        DAEMON_S,
        lambda: site.offers("vm2") == {name for name in VFS if "p0f0" in name},
    )
    looked = site.daemons("sriov_device_plugin")
    code, said, _changed = site.run()
    assert code == 0, said
    assert "vm2: the SR-IOV device plugin starts again" in plain(said)
    assert "vm1: the SR-IOV device plugin starts again" not in plain(said)
    now = site.daemons("sriov_device_plugin")
    assert now["vm2"]["metadata"]["uid"] != looked["vm2"]["metadata"]["uid"]
    assert now["vm1"]["metadata"]["uid"] == first["vm1"]["metadata"]["uid"]
    assert all(condition(pod) for pod in site.ranks().values())
    site.has_its_vfs()
    site.works()


def test_everything_of_ours_goes_and_pods_still_start(site: Site) -> None:
    """The entry point gets no fabric plan: attachments, and then their CRD, are removed by label alone."""
    assert site.remove() > 0
    kinds = (
        "daemonsets,statefulsets,pods,configmaps,services,serviceaccounts,secrets,roles,rolebindings,networkpolicies"
    )
    left = site.listed(kinds, "--all-namespaces", "-l", OURS)
    left += site.listed("clusterroles,clusterrolebindings,runtimeclasses,priorityclasses,crds", "-l", OURS)
    assert not [f"{each['kind']}/{each['metadata']['name']}" for each in left]
    assert not [each for node in site.listed("nodes") for each in node["metadata"]["labels"] if "dgxspark" in each]
    for node in NODES:
        assert site.lane.ssh(node, "ls /etc/cni/net.d") == "10-lab.conflist"
        name = f"after-{node}"
        chosen = f'{{"spec":{{"nodeName":"vm{node}","terminationGracePeriodSeconds":0}}}}'
        pause = ["--image", lane.PAUSE, "--image-pull-policy=Never", "--restart=Never", f"--overrides={chosen}"]
        site.kubectl("run", name, *pause)
        until(
            f"vm{node}: a pod starts on the cluster's network",
            DAEMON_S,
            lambda name=name: site.listed("pods", f"--field-selector=metadata.name={name},status.phase=Running") != [],
        )
        site.kubectl("delete", "pod", name)
    assert site.remove() == 0
