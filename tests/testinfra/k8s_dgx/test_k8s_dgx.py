"""What the role k8s_dgx left in a cluster. ITS API SERVER IS A STAND-IN: no engine runs, pods are told to be ready."""

from __future__ import annotations

from ansible_collections.dgxspark.cluster.tests.testinfra.cluster import api, names

SPACE = "dgx-serving"
RANKS = {f"serve-default-rank{rank}": f"spark{rank + 1}" for rank in range(4)}


def test_there_is_one_rank_on_each_spark() -> None:
    assert names(api("AppsV1Api").list_namespaced_stateful_set(SPACE)) == set(RANKS)
    pods = {pod.metadata.name: pod for pod in api("CoreV1Api").list_namespaced_pod(SPACE).items}
    assert {name: pods[f"{name}-0"].spec.node_name for name in RANKS} == RANKS


def test_ranks_run_the_pinned_image_and_say_their_profile() -> None:
    for pod in api("CoreV1Api").list_namespaced_pod(SPACE).items:
        if pod.metadata.name.startswith("serve-"):
            assert pod.spec.containers[0].image.endswith("@sha256:" + "0" * 64)
            assert pod.metadata.annotations["dgxspark.cluster/profile"] == "qwen3.5-397b-a17b-nvfp4"


def test_the_service_leads_to_the_head() -> None:
    service = api("CoreV1Api").read_namespaced_service("serve-default", SPACE)
    heads = [
        pod.metadata.name
        for pod in api("CoreV1Api").list_namespaced_pod(SPACE).items
        if (service.spec.selector or {}).items() <= (pod.metadata.labels or {}).items()
    ]
    assert heads == ["serve-default-rank0-0"]


def test_what_ranks_need_of_the_cluster_is_there() -> None:
    assert "dgxspark-multus" in names(api("AppsV1Api").list_daemon_set_for_all_namespaces())
