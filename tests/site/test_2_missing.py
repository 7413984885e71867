"""What is missing on real nodes is named within a minute, by kube_wait, and the next run restores it."""

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


def test_a_missing_image_is_named_and_the_model_before_serves_on(served: Served) -> None:
    model = served.ask("/v1/models")["data"][0]["id"]
    failed = served.run(playbook="playbooks/serve.yml", k8s_dgx_image="localhost/absent:lab")
    assert failed.code != 0
    assert "spark4: it is missing, and k8s_dgx_serving.image_pull is Never" in plain(failed.output)
    assert "Nothing was stopped." in plain(failed.output)
    assert not [name for name in served.listed("pods", "-n", NAMESPACE) if "-pull-" in name["metadata"]["name"]]
    assert all(condition(pod) for pod in served.ranks().values())
    assert served.ask("/v1/models")["data"][0]["id"] == model


def take_the_vf() -> None:
    sh("spark2", "echo 0 >/sys/class/net/enP2p1s0f0np0/device/sriov_numvfs")


def test_a_missing_attachment_is_named_within_a_minute(served: Served) -> None:
    served.misses_an_attachment("spark2", served.serve, 240)


def test_a_missing_vf_is_named_within_a_minute(served: Served) -> None:
    served.misses_a_vf("spark2", take_the_vf, served.good, 240)


def test_a_vf_that_a_pod_lost_is_named_within_a_minute(served: Served) -> None:
    served.loses_a_vf("spark2", take_the_vf, served.good, 240)
