"""The role k8s_dgx against a real API server with real controllers: DGXSPARK_TEST_KUBECONFIG names its kubeconfig.

Not KUBECONFIG itself, so that the tests never run by accident in a developer's own cluster. It needs nodes spark1 to spark4 that each
offer one nvidia.com/gpu and the VFs of index 0 (dgxspark.cluster/p0f0v0, p0f1v0); stand-in kubelets will do. A server before
1.21 has no policy/v1: the disruption budget is then not run.
"""

from __future__ import annotations

import os
import pathlib
import time
import typing as t

import pytest

from ansible_collections.dgxspark.cluster.tests.api import harness

PLACE = os.environ.get("DGXSPARK_TEST_KUBECONFIG", "")
pytestmark = [
    pytest.mark.skipif(not PLACE, reason="not run: DGXSPARK_TEST_KUBECONFIG names no cluster"),
    pytest.mark.skipif(not harness.can_run(), reason=harness.NOT_RUN),
]
NAMESPACE = "dgx-serving"


class Real(harness.Site):
    """The site with a real cluster."""

    def __init__(self, folder: pathlib.Path) -> None:
        import kubernetes

        client = kubernetes.config.new_client_from_config(PLACE)
        self.core, self.apps = kubernetes.client.CoreV1Api(client), kubernetes.client.AppsV1Api(client)
        policy = kubernetes.client.PolicyApi(client).get_api_group()
        budgets = any(version.version == "v1" for version in policy.versions)
        if not budgets:
            print("not run: PodDisruptionBudget (this server has no policy/v1)")
        self.choices: dict[str, t.Any] = {} if budgets else {"max_unavailable": None}
        # Its nodes offer the VFs of index 0.
        more = {"k8s_platform_components": {"vf_indexes": [0]}}
        super().__init__(folder, pathlib.Path(PLACE), k8s_dgx_serving=self.choices, **more)

    def pods(self) -> dict[str, t.Any]:
        found = self.core.list_namespaced_pod(NAMESPACE, label_selector="app.kubernetes.io/name=dgxspark-serving")
        return {pod.metadata.name: pod for pod in found.items}


@pytest.fixture
def site(tmp_path: pathlib.Path) -> Real:
    return Real(tmp_path)


@pytest.mark.more
def test_one_way_through(site: Real) -> None:
    site.good("--check", "--diff")
    assert not site.pods()
    assert site.good() > 0
    assert {name: pod.spec.node_name for name, pod in site.pods().items()} == {
        f"serve-default-rank{rank}-0": f"spark{rank + 1}" for rank in range(4)
    }
    uids = {pod.metadata.uid for pod in site.pods().values()}
    # Again, and in check mode: nothing changes, no pod is replaced.
    assert site.good() == 0
    assert site.good("--check") == 0
    assert {pod.metadata.uid for pod in site.pods().values()} == uids
    # Server-side apply owns only the fields that we manage; what others add stays, and is not reported as a change.
    labels = {"metadata": {"labels": {"theirs": "stays"}}}
    site.core.patch_namespaced_service("serve-default", NAMESPACE, labels, field_manager="somebody")
    assert site.good() == 0
    service = site.core.read_namespaced_service("serve-default", NAMESPACE)
    assert service.metadata.labels["theirs"] == "stays"
    managers = {(each.manager, each.operation) for each in service.metadata.managed_fields}
    assert managers == {("dgxspark.cluster", "Apply"), ("somebody", "Update")}
    # A field of ours that somebody changed is set back, and that is a change.
    ports = {"spec": {"ports": [{"port": service.spec.ports[0].port, "targetPort": 1}]}}
    site.core.patch_namespaced_service("serve-default", NAMESPACE, ports, field_manager="somebody")
    assert site.good() == 1
    assert site.core.read_namespaced_service("serve-default", NAMESPACE).spec.ports[0].target_port == "http"
    # A fifth rank has no free GPU: it stays Pending, and the cause is given in the scheduler's own words.
    extra = {"instance": {"name": "fifth", "port": 31000, "dist_port": 52000}}
    soon = {**site.choices, "peers_timeout_s": 5, "load_timeout_s": 5}
    code, said, _changed = site.run(k8s_dgx_overrides=extra, k8s_dgx_serving=soon)
    assert code != 0
    assert "Insufficient nvidia.com/gpu" in said
    assert {pod.metadata.uid for pod in site.pods().values()} == uids
    # The switch: other pods behind the same service.
    assert site.good(k8s_dgx_model_profile=harness.OTHER) > 0
    assert not uids & {pod.metadata.uid for pod in site.pods().values()}
    assert {pod.metadata.annotations["dgxspark.cluster/profile"] for pod in site.pods().values()} == {harness.OTHER}
    assert site.core.read_namespaced_service("serve-default", NAMESPACE).metadata.uid == service.metadata.uid
    # Absent, and gone.
    assert site.good(k8s_dgx_state="absent") > 0
    until = time.monotonic() + 60
    while site.pods() and time.monotonic() < until:
        time.sleep(1)
    assert not site.pods()
    assert not site.apps.list_namespaced_stateful_set(NAMESPACE).items
    assert site.good(k8s_dgx_state="absent") == 0
