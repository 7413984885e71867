"""What the role k8s_platform left in a cluster. ITS API SERVER IS A STAND-IN, without kubelets: pods are told to be ready."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.tests.testinfra.cluster import api, names

PARTS = {"dgxspark-multus", "dgxspark-sriov-device-plugin", "dgxspark-nvidia-device-plugin"}
SPARKS = {"spark1", "spark2", "spark3", "spark4"}


def test_the_parts_are_there_and_have_a_pod_on_each_spark() -> None:
    assert names(api("AppsV1Api").list_daemon_set_for_all_namespaces()) == PARTS
    pods = api("CoreV1Api").list_pod_for_all_namespaces().items
    for part in PARTS:
        assert {pod.spec.node_name for pod in pods if pod.metadata.name.startswith(part)} == SPARKS, part


def test_each_vf_s_network_is_there() -> None:
    listed = api("CustomObjectsApi").list_cluster_custom_object(
        "k8s.cni.cncf.io", "v1", "network-attachment-definitions"
    )
    assert {each["metadata"]["name"] for each in listed["items"]} == {"p0f0v0", "p0f1v0", "p0f0v1", "p0f1v1"}


def test_nothing_is_served() -> None:
    assert names(api("AppsV1Api").list_stateful_set_for_all_namespaces()) == set()
