"""What is missing on real nodes is named within a minute, by kube_wait, and the next run brings it."""

from __future__ import annotations

import pytest
from harness import sh

from ansible_collections.dgxspark.cluster.tests.nodes.asked import NAMESPACE, condition, plain
from ansible_collections.dgxspark.cluster.tests.site.site import Served

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def serving(served: Served) -> None:
    if not served.ready():
        served.good()


def test_a_missing_image_is_named_and_the_model_before_comes_back(served: Served) -> None:
    model = served.ask("/v1/models")["data"][0]["id"]
    failed = served.run(
        playbook="playbooks/serve.yml", k8s_dgx_image="localhost/absent:lab", k8s_dgx_image_state="unmanaged"
    )
    assert failed.code != 0
    assert 'localhost/absent:lab: Container image "localhost/absent:lab" is not present' in plain(failed.output)
    assert "The model before it serves again." in plain(failed.output)
    assert all(condition(pod) for pod in served.ranks().values())
    assert served.ask("/v1/models")["data"][0]["id"] == model


def test_a_missing_attachment_is_named_within_a_minute(served: Served) -> None:
    served.kubectl("delete", "net-attach-def", "-n", NAMESPACE, "p0f1v0")
    lacking = "cannot find a network-attachment-definition (p0f1v0) in namespace (dgx-serving)"
    served.renew(1, 240)
    served.names("attachment", lacking, "serve-default-rank1-0 on spark2")
    # The next run makes it, and the ranks need no more than that.
    served.serve()
    assert all(condition(pod) for pod in served.ranks().values())


def test_a_missing_vf_is_named_within_a_minute(served: Served) -> None:
    served.kubectl("cordon", "spark2")
    try:
        served.renew(1, 240)
        sh("spark2", "echo 0 >/sys/class/net/enP2p1s0f0np0/device/sriov_numvfs")
    finally:
        served.kubectl("uncordon", "spark2")
    # By the plugin, or before it by the scheduler, where the device plugin was quicker.
    served.names("VF", "serve-default-rank1-0", ("The VF is not on the node", "is the VF there and free?"))
    # The next run makes the VFs of that node anew.
    served.good()
    assert all(condition(pod) for pod in served.ranks().values())


def test_a_vf_that_a_pod_lost_is_named_within_a_minute(served: Served) -> None:
    """The plugin cannot give it back, so the pod stays until there is one again."""
    sh("spark2", "echo 0 >/sys/class/net/enP2p1s0f0np0/device/sriov_numvfs")
    served.dismiss(1, 240)
    # In the plugin's words where the kubelet has told them.
    served.names("VF of a pod", "serve-default-rank1-0 on spark2", ("The VF is not on the node", "Where a VF of it"))
    served.good()
    assert all(condition(pod) for pod in served.ranks().values())
